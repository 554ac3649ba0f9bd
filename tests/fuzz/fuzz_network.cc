// Descriptions of networks and training steps are files of a user.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "network/imported.h"
#include "network/routes.h"
#include "ropewalk/status.h"
#include "simulate/plan.h"
#include "simulate/training_step.h"
#include "synthesize/synthesize.h"

namespace {

using namespace ropewalk;

template <class Read>
void try_to(const Read& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

uint64_t sends_of(const ScheduleKey& key) {
  uint64_t sends = 0;
  for (int rank = 0; rank < key.ranks; ++rank)
    for (const Step& step : build_schedule(key, rank).steps) sends += is_send(step.op);
  return sends;
}

/// Nothing beats the bound, and each slice of each message is sent once.
void simulate(Routes& routes, Algorithm algorithm, size_t bytes) {
  constexpr double kRounding = 1e-9;
  const Network& network = routes.network();
  CallToSimulate call = call_for(request_on(network, Collective::all_reduce, 0, bytes), algorithm);
  call.messages_max = 20'000;
  try_to([&] {
    const SimulatedCall told = simulate_call(routes, call);
    const double least_s = least_seconds(network, Collective::all_reduce, 0, bytes);
    if (told.seconds() < least_s * (1 - kRounding) - kRounding) abort();
    const uint64_t sends = sends_of(call.key);
    if (told.messages < sends || told.messages % sends != 0) abort();
  });
}

/// What is read can be written and read again, routed, simulated and planned on.
void use(const Network& network) {
  constexpr int kSimulatedRanksMax = 64, kSimulatedNodesMax = 256, kForestRanksMax = 16;
  const std::string written = text_of(network);
  if (text_of(parse_network(written)) != written) abort();
  Routes routes(network);
  std::vector<LinkWay> path;
  const int ranks = network.ranks();
  for (int from = 0; from < ranks; from += 1 + ranks / 8)
    for (int to = 0; to < ranks; to += 1 + ranks / 8) routes.find(from, to, path);
  if (ranks < 2 || ranks > kSimulatedRanksMax || network.node_count() > kSimulatedNodesMax) return;
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree, Algorithm::direct})
    for (const size_t bytes : {size_t{8}, size_t{1} << 20}) simulate(routes, algorithm, bytes);
  if (ranks > kForestRanksMax) return;
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather})
    try_to([&] { make_forest(routes, collective, 0); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_to([&] { use(parse_network(text)); });
  try_to([&] { use(network_of_astra_sim(text)); });
  try_to([&] { use(network_of_taccl(parse_located_json(text, "network"), 64)); });
  try_to([&] { parse_training_model(text); });
  try_to([&] { network_of_template(text.substr(0, 64), 0); });
  return 0;
}
