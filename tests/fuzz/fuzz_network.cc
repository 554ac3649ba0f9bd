// Descriptions of networks and training steps are files of a user.
#include <cstdlib>
#include <string_view>

#include "network/imported.h"
#include "network/routes.h"
#include "ropewalk/status.h"
#include "simulate/training_step.h"

namespace {

/// What is read can be written and read again, and routed.
void use(const ropewalk::Network& network) {
  using namespace ropewalk;
  const std::string written = text_of(network);
  if (text_of(parse_network(written)) != written) abort();
  Routes routes(network);
  std::vector<LinkWay> path;
  const int ranks = network.ranks();
  for (int from = 0; from < ranks; from += 1 + ranks / 8)
    for (int to = 0; to < ranks; to += 1 + ranks / 8) routes.find(from, to, path);
}

template <class Read>
void try_to(const Read& read) {
  try {
    read();
  } catch (const ropewalk::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ropewalk;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_to([&] { use(parse_network(text)); });
  try_to([&] { use(network_of_astra_sim(text)); });
  try_to([&] { use(network_of_taccl(parse_located_json(text, "network"), 64)); });
  try_to([&] { parse_training_model(text); });
  try_to([&] { network_of_template(text.substr(0, 64), 0); });
  return 0;
}
