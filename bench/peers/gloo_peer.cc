// The same all_reduce by Gloo: over TCP on --interface, or with --transport verbs over
// the first RDMA adapter. Variants: ring and bcube (its newer interface, for TCP only),
// halving_doubling and ring_chunked (its older one, by buffers fixed once).
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>

#include "measure.h"

namespace ropewalk::peers {
namespace {

using GlooContext = std::shared_ptr<gloo::rendezvous::Context>;

class OptionsRunner final : public PlainRunner {
 public:
  OptionsRunner(const GlooContext& context, const PeerOptions& options,
                const tools::BenchShape& shape, gloo::AllreduceOptions::Algorithm algorithm)
      : PlainRunner(options, shape), options_(context) {
    void (*sum)(void*, const void*, const void*, size_t) = &gloo::sum<float>;
    options_.setReduceFunction(sum);
    options_.setAlgorithm(algorithm);
    options_.setOutput(reinterpret_cast<float*>(out()), shape.count);
  }
  void run() override { gloo::allreduce(options_); }

 private:
  gloo::AllreduceOptions options_;
};

template <class GlooAlgorithm>
class AlgorithmRunner final : public PlainRunner {
 public:
  AlgorithmRunner(const GlooContext& context, const PeerOptions& options,
                  const tools::BenchShape& shape)
      : PlainRunner(options, shape),
        algorithm_(std::make_unique<GlooAlgorithm>(
            context, std::vector<float*>{reinterpret_cast<float*>(out())},
            static_cast<int>(shape.count))) {}
  void run() override { algorithm_->run(); }

 private:
  std::unique_ptr<GlooAlgorithm> algorithm_;  // its destructor may throw
};

std::unique_ptr<Runner> make_runner(const GlooContext& context, const PeerOptions& options,
                                    const tools::BenchShape& shape) {
  using Choice = gloo::AllreduceOptions::Algorithm;
  using HalvingDoubling = AlgorithmRunner<gloo::AllreduceHalvingDoubling<float>>;
  using RingChunked = AlgorithmRunner<gloo::AllreduceRingChunked<float>>;
  if (options.variant == "ring")
    return std::make_unique<OptionsRunner>(context, options, shape, Choice::RING);
  if (options.variant == "bcube")
    return std::make_unique<OptionsRunner>(context, options, shape, Choice::BCUBE);
  if (options.variant == "halving_doubling")
    return std::make_unique<HalvingDoubling>(context, options, shape);
  if (options.variant == "ring_chunked")
    return std::make_unique<RingChunked>(context, options, shape);
  throw std::invalid_argument("--variant: " + options.variant);
}

std::shared_ptr<gloo::transport::Device> open_device(const PeerOptions& options) {
  if (options.transport == "verbs") {
    constexpr int kPort = 1, kGidIndex = 1;  // RoCE v2 by IPv4, in the machine of tools/rdma-vm
    return gloo::transport::ibverbs::CreateDevice({.name = "", .port = kPort, .index = kGidIndex});
  }
  gloo::transport::tcp::attr attributes;
  attributes.iface = options.interface;
  return gloo::transport::tcp::CreateDevice(attributes);
}

GlooContext connect(const PeerOptions& options, int rank) {
  auto device = open_device(options);
  const std::string folder = options.segment + ".gloo";
  std::filesystem::create_directories(folder);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, options.ranks);
  context->connectFullMesh(store, device);
  return context;
}

int run_peer(int argc, char** argv) {
  const PeerOptions options = parse_options(argc, argv);
  const int rank = launched_rank();
  const Waiting waiting = bind_to_core(options, rank);
  if (options.kind.collective != Collective::all_reduce || options.type != DataType::float32)
    throw std::invalid_argument("only all_reduce of float32 is measured with Gloo");
  const GlooContext context = connect(options, rank);
  Segment segment(options.segment);
  const int64_t wrong =
      measure(options, rank, waiting, segment,
              [&](const tools::BenchShape& shape) { return make_runner(context, options, shape); });
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  return ropewalk::peers::run_program("gloo_peer", ropewalk::peers::run_peer, argc, argv);
}
