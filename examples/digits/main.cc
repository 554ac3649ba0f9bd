// Example: handwritten digits, trained on all ranks of a job.
//
//   ropewalk run -n 4 -- build/examples/digits
//   ropewalk run -n 4 -- build/examples/digits --policy ea --tau 10 --alpha 0.2
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>

#include "checkpoint.h"
#include "ropewalk/communicator.h"
#include "trainer.h"

namespace {

using digits::Config;

void add_options(CLI::App& app, Config& config) {
  app.option_defaults()->always_capture_default();
  app.add_option("--policy", config.policy,
                 "what the ranks average: gradients (sgd) or parameters (ea)")
      ->check(CLI::IsMember({"sgd", "ea"}));
  app.add_option("--tau", config.tau, "ea: average at every TAU-th step")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--alpha", config.alpha, "ea: moving rate, between 0 and 1")
      ->check(CLI::Range(1e-6, 1 - 1e-6));
  app.add_option("--epochs", config.epochs, "passes over the training images")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--batch", config.batch, "images a rank and step")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--lr", config.learning_rate, "learning rate")->check(CLI::Range(0.0, 1000.0));
  app.add_option("--momentum", config.momentum, "0 (none) to below 1")
      ->check(CLI::Range(0.0, 0.999999));
  app.add_option("--seed", config.seed, "of the first weights and the order of the images");
  app.add_option("--save", config.save, "write the parameters to this file at the end");
  app.add_option("--load", config.load, "start from the parameters in this file");
  app.add_option("--data", config.data,
                 "digits.csv.gz (default: the copy that comes with Ropewalk)");
}

void run(ropewalk::Communicator& comm, const Config& config) {
  digits::Trainer trainer(comm, config);
  trainer.train();
  if (!config.save.empty()) {
    if (comm.rank() == 0) digits::save_checkpoint(config.save, trainer.parameters());
    comm.barrier();  // where the others learn that it failed
  }
  const auto digest = digits::digest_of(std::as_bytes(trainer.parameters()));
  fmt::print("rank {} parameters {}\n", comm.rank(), digits::hex(digest));
  if (comm.rank() == 0) fmt::print("held-out accuracy {:.1f} %\n", 100 * trainer.accuracy());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  Config config;
  CLI::App app("Trains a small convolutional net on handwritten digits, on all ranks of a job.");
  add_options(app, config);
  CLI11_PARSE(app, argc, argv);

  std::unique_ptr<ropewalk::Communicator> comm;
  try {
    comm = ropewalk::Communicator::create();
    run(*comm, config);
    comm.reset();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "digits: {}\n", error.what());
    try {
      if (comm) comm->abort(error.what());  // so that the others do not wait for this rank
    } catch (const std::exception&) {
      // Broken already: then they know.
    }
    return 1;
  }
}
