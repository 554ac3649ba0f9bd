// Trains the net on all ranks of a communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataset.h"
#include "net.h"
#include "progress.h"
#include "random.h"
#include "ropewalk/communicator.h"
#include "ropewalk/policies.h"

namespace digits {

struct Config {
  std::string policy = "sgd";  // or "ea"
  int tau = 10;                // ea: averages every tau-th step
  double alpha = 0.2;          // ea: moving rate
  int epochs = 30;
  int batch = 12;  // images a rank and step
  double learning_rate = 0.03;
  double momentum = 0.9;
  uint64_t seed = 1;
  std::string save, load;  // checkpoints; empty: none
  std::string data;        // empty: where it came with the program
};

class Trainer {
 public:
  /// Loads the data and, on rank 0, the checkpoint; throws ropewalk::Error. `comm` must outlive it.
  Trainer(ropewalk::Communicator& comm, const Config& config);

  /// Trains; afterwards all ranks have the same parameters. Throws ropewalk::Error.
  void train();

  std::span<const float> parameters() const { return parameters_.span(); }
  /// Of the held-out images, 0 to 1.
  double accuracy();

 private:
  struct Seconds {
    double total = 0, communication = 0;
  };

  size_t steps_per_epoch() const;
  void check_batch(size_t images) const;
  double train_epoch(int epoch, Progress& progress, Seconds& seconds);
  double step(std::span<const Image> batch, Seconds& seconds);
  void descend();
  void synchronize();
  EpochReport report(int epoch, double loss, const Seconds& seconds);

  ropewalk::Communicator& comm_;
  const Config config_;
  Random random_;            // the order of this rank's images
  std::vector<Image> mine_;  // this rank's part of the training images
  std::vector<Image> held_out_;
  Net<float> net_;
  ropewalk::Buffer<float> parameters_, gradients_, velocity_;
  std::vector<std::span<float>> parameter_list_, gradient_list_;
  std::optional<ropewalk::AllReduceSgd<float>> sgd_;  // one of the two
  std::optional<ropewalk::AllReduceEa<float>> ea_;
};

}  // namespace digits
