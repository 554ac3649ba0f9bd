// Replays a schedule of this library as an MPI program, for SimGrid's SMPI: each rank runs its
// steps in list order, with sends that wait for nothing. Prints the simulated seconds.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "schedule/algorithm.h"

int main(int argc, char** argv) {
  using namespace ropewalk;
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 4) return 2;
  const ScheduleKey key{*collective_named(argv[1]), *algorithm_named(argv[2]), ranks, 0, {}};
  const auto bytes = std::strtoull(argv[3], nullptr, 10);
  const Schedule schedule = build_schedule(key, rank);
  const int blocks = descriptor_of(key.algorithm).blocks(key.collective, hosts_of({}, ranks));
  const auto block_bytes = static_cast<int>((bytes + blocks - 1) / blocks);
  std::vector<char> sent(static_cast<size_t>(block_bytes)), received(sent);
  std::vector<MPI_Request> requests;
  const double begin = MPI_Wtime();  // all start at once
  for (const Step& step : schedule.steps) {
    if (is_send(step.op))
      MPI_Isend(sent.data(), block_bytes, MPI_BYTE, step.peer, step.lane, MPI_COMM_WORLD,
                &requests.emplace_back());
    else if (is_recv(step.op))
      MPI_Recv(received.data(), block_bytes, MPI_BYTE, step.peer, step.lane, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  const double own = MPI_Wtime() - begin;
  double most = 0;
  MPI_Reduce(&own, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("{\"seconds\": %.12f}\n", most);
  MPI_Finalize();
}
