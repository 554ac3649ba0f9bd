// Goes on by Communicator::shrink.
#include <memory>

#include "options.h"
#include "ropewalk/communicator.h"
#include "survivor.h"

namespace ropewalk::peers {
namespace {

int run_survivor(int argc, char** argv) {
  const SurvivorOptions options = parse_survivor_options(argc, argv);
  Options join;
  join.transport = options.transport;
  auto comm = Communicator::create(join);
  Survivor survivor(options, comm->rank());
  for (bool goes_on = true; goes_on;) try {
      comm->all_reduce(survivor.fill(comm->rank()));
      goes_on = survivor.check(comm->size());
    } catch (const Error& error) {
      if (!error.is_survivable()) throw;
      comm = comm->shrink();
    }
  comm->leave();
  return 0;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  return ropewalk::peers::run_program("ropewalk_survivor", ropewalk::peers::run_survivor, argc,
                                      argv);
}
