// Descriptions of networks and training steps are files of a user. What is read can be written,
// read again, and routed.
#include <cstdlib>
#include <string_view>

#include "network/routes.h"
#include "ropewalk/status.h"
#include "simulate/training_step.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ropewalk;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Network network = parse_network(text);
    const std::string written = text_of(network);
    if (text_of(parse_network(written)) != written) abort();
    Routes routes(network);
    std::vector<LinkWay> path;
    const int ranks = network.ranks();
    for (int from = 0; from < ranks; from += 1 + ranks / 8)
      for (int to = 0; to < ranks; to += 1 + ranks / 8) routes.find(from, to, path);
  } catch (const Error&) {
  }
  try {
    parse_training_model(text);
  } catch (const Error&) {
  }
  try {
    network_of_template(text.substr(0, 64), 0);
  } catch (const Error&) {
  }
  return 0;
}
