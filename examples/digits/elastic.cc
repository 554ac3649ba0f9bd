// Example: handwritten digits, trained by a job that goes on when ranks die, and takes in others.
//
//   ropewalk run --elastic 2:4 --restart 100 -- build/examples/elastic_digits
//   pkill -9 -n elastic_digits          # in another terminal, as often as you like
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint.h"
#include "dataset.h"
#include "net.h"
#include "random.h"
#include "ropewalk/communicator.h"
#include "ropewalk/elastic_async_ea.h"
#include "ropewalk/policies.h"

namespace {

using ropewalk::Communicator;

struct Config {
  std::string policy = "sgd";
  int tau = 10;
  double alpha = 0.2;
  int64_t steps = 3000;
  int batch = 12;  // images a rank and step
  double learning_rate = 0.03, momentum = 0.9;
  int pause_ms = 0;  // after each step, as a larger net would take
};

class Trainer {
 public:
  explicit Trainer(const Config& config)
      : config_(config), split_(digits::split_images(digits::load_images(digits::find_data()))) {
    Net::initialize(parameters_, 1);
  }

  /// Throws ropewalk::Error where this rank cannot go on.
  void train() {
    if (config_.policy == "async-ea") return train_at_own_pace();
    change(Communicator::create());
    if (config_.policy == "ea")
      ea_.emplace(*comm_, config_.tau, config_.alpha);
    else
      sgd_.emplace(*comm_);
    for (bool ends = false; !ends;) try {
        if (!has_resumed_) resume();
        if (step_ < config_.steps)
          take_in_who_waits_or_step();
        else
          ends = finish();
      } catch (const ropewalk::Error& error) {
        if (!error.is_survivable()) throw;
        change(comm_->grow());  // without those that died, with those who wait
      }
  }

  void report() {
    const auto digest = digits::digest_of(std::as_bytes(std::span(parameters_)));
    fmt::print("rank {} parameters {}\n", membership_.rank, digits::hex(digest));
    if (membership_.rank == 0)
      fmt::print("{} ranks, epoch {}: held-out accuracy {:.1f} %\n", membership_.size,
                 membership_.epoch, 100 * accuracy());
    std::fflush(stdout);
  }

 private:
  using Net = digits::Net<float>;

  /// Others come and go meanwhile; the library sees to that.
  void train_at_own_pace() {
    ropewalk::ElasticAsyncEa<float> ea(Communicator::create(), config_.tau, config_.alpha,
                                       parameter_list_);
    take_images(ea.membership());
    for (; ea.steps() < static_cast<uint64_t>(config_.steps); pause()) {
      learn();
      descend();
      ea.average_parameters(parameter_list_);
      step_ = static_cast<int64_t>(ea.steps());
      if (const auto now = ea.membership(); now.epoch != membership_.epoch) take_images(now);
    }
    ea.finish(parameter_list_);
    membership_ = ea.membership();
  }

  void take_in_who_waits_or_step() {
    int waiting = comm_->pending();
    comm_->broadcast(std::span(&waiting, 1), 0);  // ranks may differ in what they have heard
    if (waiting > 0) {
      if (auto next = comm_->grow()) change(std::move(next));
      return;
    }
    step();
  }

  void change(std::unique_ptr<Communicator> next) {
    comm_ = std::move(next);
    has_resumed_ = false;
    take_images({comm_->epoch().number, comm_->rank(), comm_->size()});
  }

  void take_images(const ropewalk::Membership& membership) {
    membership_ = membership;
    const auto part = digits::part_of_rank(split_.training, membership.rank, membership.size);
    mine_.assign(part.begin(), part.end());
    next_image_ = mine_.size();
    if (membership.rank != 0) return;
    fmt::print("epoch {} has {} ranks, at step {}\n", membership.epoch, membership.size, step_);
    std::fflush(stdout);
  }

  /// With the others of the epoch.
  void resume() {
    if (sgd_)
      sgd_->resume(*comm_, parameter_list_);
    else
      ea_->resume(*comm_, parameter_list_);
    take_over_last_step();
    has_resumed_ = true;
  }

  /// All go on from the step of the one that made most, with its momentum.
  void take_over_last_step() {
    std::vector<int64_t> steps(static_cast<size_t>(comm_->size()));
    comm_->all_gather(std::span(&step_, 1), steps);
    const auto most = std::ranges::max_element(steps);
    comm_->broadcast(std::span(velocity_), static_cast<int>(most - steps.begin()));
    step_ = *most;
  }

  const digits::Image& next_image() {
    if (next_image_ == mine_.size()) {
      digits::shuffle(std::span(mine_), random_);
      next_image_ = 0;
    }
    return mine_[next_image_++];
  }

  void step() {
    learn();
    if (sgd_) sgd_->sum_and_normalize_gradients(gradient_list_);
    descend();
    if (ea_) ea_->average_parameters(parameter_list_);
    ++step_;
    pause();
  }

  void learn() {
    std::ranges::fill(gradients_, 0.0f);
    for (int i = 0; i < config_.batch; ++i) net_.learn(parameters_, next_image(), gradients_);
    for (float& gradient : gradients_) gradient /= static_cast<float>(config_.batch);
  }

  void pause() const { std::this_thread::sleep_for(std::chrono::milliseconds(config_.pause_ms)); }

  void descend() {
    const auto rate = static_cast<float>(config_.learning_rate);
    const auto momentum = static_cast<float>(config_.momentum);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      velocity_[i] = momentum * velocity_[i] + gradients_[i];
      parameters_[i] -= rate * velocity_[i];
    }
  }

  /// True, on all ranks, where all have come here with equal parameters.
  bool finish() {
    if (ea_) {
      ea_->synchronize_center(parameter_list_);  // waits for all, with equal numbers of steps
      std::vector<float> mean = parameters_;     // ranks differ by some steps of their own
      comm_->all_reduce(std::span(mean), ropewalk::kAvg);
      std::ranges::copy(mean, parameters_.begin());
    }
    return comm_->agree(1).ranks.size() == static_cast<size_t>(comm_->size());
  }

  double accuracy() {
    const auto right = std::ranges::count_if(split_.held_out, [this](const digits::Image& image) {
      return net_.classify(parameters_, image) == image.label;
    });
    return static_cast<double>(right) / static_cast<double>(split_.held_out.size());
  }

  const Config config_;
  const digits::Split split_;
  digits::Random random_{std::random_device()()};  // the order of this rank's images
  ropewalk::Membership membership_;
  std::unique_ptr<Communicator> comm_;                // not of async-ea
  std::optional<ropewalk::AllReduceSgd<float>> sgd_;  // or the next, or neither
  std::optional<ropewalk::AllReduceEa<float>> ea_;
  Net net_;
  std::vector<float> parameters_ = std::vector<float>(Net::kParameters);
  std::vector<float> gradients_ = parameters_, velocity_ = parameters_;
  const std::vector<std::span<float>> parameter_list_ = Net::tensors(parameters_);
  const std::vector<std::span<float>> gradient_list_ = Net::tensors(gradients_);
  std::vector<digits::Image> mine_;  // this rank's part of the training images
  size_t next_image_ = 0;
  int64_t step_ = 0;
  bool has_resumed_ = false;  // in the epoch
};

}  // namespace

int main(int argc, char** argv) {
  Config config;
  CLI::App app("Trains a small convolutional net on handwritten digits while ranks come and go.");
  app.option_defaults()->always_capture_default();
  app.add_option("--policy", config.policy,
                 "what the ranks average: gradients (sgd), parameters (ea), or each its own with a "
                 "center when it likes (async-ea)")
      ->check(CLI::IsMember({"sgd", "ea", "async-ea"}));
  app.add_option("--steps", config.steps, "of the job")->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--batch", config.batch, "images a rank and step")->check(CLI::Range(1, 1000));
  app.add_option("--pause-ms", config.pause_ms, "after each step")->check(CLI::Range(0, 10'000));
  CLI11_PARSE(app, argc, argv);
  try {
    Trainer trainer(config);
    trainer.train();
    trainer.report();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "elastic_digits: {}\n", error.what());
    return 1;
  }
}
