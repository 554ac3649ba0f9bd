#include "trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "checkpoint.h"

namespace digits {
namespace {

using ropewalk::Error;
using ropewalk::ErrorCode;

/// Adds the time from construction to destruction.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Trainer::Trainer(ropewalk::Communicator& comm, const Config& config)
    : comm_(comm),
      config_(config),
      random_(config.seed * 1'000'003 + static_cast<uint64_t>(comm.rank())),
      parameters_(comm.allocate<float>(Net<float>::kParameters)),
      gradients_(comm.allocate<float>(Net<float>::kParameters)),
      velocity_(comm.allocate<float>(Net<float>::kParameters)),
      parameter_list_(Net<float>::tensors(parameters_.span())),
      gradient_list_(Net<float>::tensors(gradients_.span())) {
  Split split = split_images(load_images(config.data.empty() ? find_data() : config.data));
  check_batch(split.training.size());
  const auto part = part_of_rank(split.training, comm.rank(), comm.size());
  mine_.assign(part.begin(), part.end());
  held_out_ = std::move(split.held_out);

  if (config.policy == "ea")
    ea_.emplace(comm, config.tau, config.alpha);
  else
    sgd_.emplace(comm);

  Net<float>::initialize(parameters_.span(), config.seed);
  if (!config.load.empty() && comm.rank() == 0) load_checkpoint(config.load, parameters_.span());
  // No step yet, so this puts rank 0's parameters on every rank (and makes them the center).
  if (ea_)
    ea_->synchronize_parameters(parameter_list_);
  else
    sgd_->synchronize_parameters(parameter_list_);
}

/// Only whole batches: the order changes with every epoch, so no image is left out for good. Ranks
/// with one image more may do one step more.
size_t Trainer::steps_per_epoch() const {
  return mine_.size() / static_cast<size_t>(config_.batch);
}

/// Rank 0 has the largest part: where that has no whole batch, no rank would ever do a step.
void Trainer::check_batch(size_t images) const {
  const auto ranks = static_cast<size_t>(comm_.size());
  const size_t largest = (images + ranks - 1) / ranks;
  if (static_cast<size_t>(config_.batch) > largest)
    throw Error(
        ErrorCode::invalid_argument, "digits",
        fmt::format("a batch of {} is more than the {} images a rank has", config_.batch, largest),
        "give a smaller --batch");
}

void Trainer::train() {
  Progress progress(comm_.rank() == 0);
  for (int epoch = 1; epoch <= config_.epochs; ++epoch) {
    Seconds seconds;
    const double loss = train_epoch(epoch, progress, seconds);
    progress.epoch(report(epoch, loss, seconds));
  }
  if (ea_) ea_->synchronize_parameters(parameter_list_);
}

/// Returns the sum of the losses of this rank's images.
double Trainer::train_epoch(int epoch, Progress& progress, Seconds& seconds) {
  Stopwatch total(seconds.total);
  shuffle(std::span(mine_), random_);
  const auto batch = static_cast<size_t>(config_.batch);
  const size_t steps = steps_per_epoch();
  double loss = 0;
  for (size_t i = 0; i < steps; ++i) {
    loss += step(std::span(mine_).subspan(i * batch, batch), seconds);
    progress.step(epoch, config_.epochs, i + 1, steps);
  }
  Stopwatch communication(seconds.communication);
  synchronize();
  return loss;
}

double Trainer::step(std::span<const Image> batch, Seconds& seconds) {
  std::ranges::fill(gradients_.span(), 0.0f);
  double loss = 0;
  for (const Image& image : batch) loss += net_.learn(parameters_, image, gradients_);
  for (float& gradient : gradients_.span()) gradient /= static_cast<float>(batch.size());
  if (sgd_) {
    {
      Stopwatch communication(seconds.communication);
      sgd_->sum_and_normalize_gradients(gradient_list_);
    }
    descend();
  } else {
    descend();
    Stopwatch communication(seconds.communication);
    ea_->average_parameters(parameter_list_);
  }
  return loss;
}

void Trainer::descend() {
  const auto rate = static_cast<float>(config_.learning_rate);
  const auto momentum = static_cast<float>(config_.momentum);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    velocity_[i] = momentum * velocity_[i] + gradients_[i];
    parameters_[i] -= rate * velocity_[i];
  }
}

void Trainer::synchronize() {
  if (ea_) {
    ea_->synchronize_center(parameter_list_);  // the ranks' parameters stay apart
    return;
  }
  sgd_->synchronize_parameters(parameter_list_);
  // The momentum belongs to the parameters, which now are those of the rank with most steps: rank
  // 0, which has the largest part of the images.
  comm_.broadcast(velocity_.span(), 0);
}

EpochReport Trainer::report(int epoch, double loss, const Seconds& seconds) {
  const auto images = static_cast<double>(steps_per_epoch() * static_cast<size_t>(config_.batch));
  std::array<double, 4> sums = {loss, images, seconds.communication, seconds.total};
  comm_.all_reduce(std::span<double>(sums));
  EpochReport report{.epoch = epoch, .epochs = config_.epochs};
  report.loss = sums[0] / sums[1];
  report.images_per_s = sums[1] / (sums[3] / comm_.size());
  report.communication_share = sums[2] / sums[3];
  if (comm_.rank() == 0) report.accuracy = accuracy();
  return report;
}

double Trainer::accuracy() {
  const auto right = std::ranges::count_if(held_out_, [this](const Image& image) {
    return net_.classify(parameters_, image) == image.label;
  });
  return static_cast<double>(right) / static_cast<double>(held_out_.size());
}

}  // namespace digits
