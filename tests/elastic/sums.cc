// A rank of an elastic job that checks every sum: sums SIZE FILE
//
// Goes on without ranks that are lost, and takes in those that come, until there is such a file on
// rank 0's host and the job has SIZE ranks. Rank 0 begins each epoch with "epoch E has N ranks".
// Status 3 where anything is wrong.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ropewalk/communicator.h"
#include "ropewalk/policies.h"

namespace {

using ropewalk::Communicator;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

class Sums {
 public:
  Sums(int size, std::string end_file) : size_(size), end_file_(std::move(end_file)) {}

  void run() {
    change(Communicator::create());
    sgd_ = std::make_unique<ropewalk::AllReduceSgd<double>>(*comm_);
    for (bool ends = false; !ends;) try {
        if (!is_equal_) become_equal();
        ends = advance();
      } catch (const ropewalk::Error& error) {
        if (!error.is_survivable()) throw;
        change(comm_->shrink());
      }
    fmt::print("ended with {} ranks after {} steps\n", comm_->size(), parameters_[0]);
  }

 private:
  enum Choice : int64_t { kStep, kGrow, kEnd };

  /// True: it is at its end, on all ranks.
  bool advance() {
    std::array<int64_t, 1> choice = {kStep};
    if (comm_->pending() > 0)
      choice = {kGrow};
    else if (comm_->size() == size_ && steps_since_change_ > 10 &&
             std::filesystem::exists(end_file_))
      choice = {kEnd};
    comm_->broadcast(std::span(choice), 0);
    if (choice[0] == kGrow)
      if (auto next = comm_->grow()) change(std::move(next));
    if (choice[0] == kStep) step();
    return choice[0] == kEnd && comm_->agree(1).ranks.size() == static_cast<size_t>(size_);
  }

  void change(std::unique_ptr<Communicator> next) {
    comm_ = std::move(next);
    is_equal_ = false;
    if (comm_->rank() != 0) return;
    fmt::print("epoch {} has {} ranks\n", comm_->epoch().number, comm_->size());
    std::fflush(stdout);
  }

  void become_equal() {
    sgd_->resume(*comm_, list_);
    steps_since_change_ = 0;
    is_equal_ = true;
  }

  /// Every parameter counts the steps of the job.
  void step() {
    std::vector<double> ones(parameters_.size(), 1);
    const std::vector<std::span<double>> gradients{ones};
    require(sgd_->sum_and_normalize_gradients(gradients) == comm_->size(), "contributors");
    for (size_t i = 0; i < ones.size(); ++i) parameters_[i] += ones[i];
    ++steps_since_change_;

    std::vector<double> lowest = parameters_, highest = parameters_;
    comm_->all_reduce(std::span(lowest), ropewalk::kMin);
    comm_->all_reduce(std::span(highest), ropewalk::kMax);
    for (size_t i = 0; i < ones.size(); ++i)
      require(ones[i] == 1 && lowest[i] == highest[0] && highest[i] == highest[0], "parameters");

    const int64_t size = comm_->size();
    std::vector<int64_t> sums(5000);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = comm_->rank() + static_cast<int64_t>(i);
    comm_->all_reduce(std::span(sums));
    for (size_t i = 0; i < sums.size(); ++i)
      require(sums[i] == size * (size - 1) / 2 + size * static_cast<int64_t>(i), "sum");
  }

  const int size_;
  const std::string end_file_;
  std::unique_ptr<Communicator> comm_;
  std::unique_ptr<ropewalk::AllReduceSgd<double>> sgd_;
  std::vector<double> parameters_ = std::vector<double>(3000, 0);
  const std::vector<std::span<double>> list_{parameters_};
  int64_t steps_since_change_ = 0;
  bool is_equal_ = false;
};

}  // namespace

int main(int, char** words) {
  try {
    Sums(std::atoi(words[1]), words[2]).run();
    return 0;
  } catch (const ropewalk::Error& error) {
    fmt::print(stderr, "sums: {}\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "sums: wrong {}\n", error.what());
    return 3;
  }
}
