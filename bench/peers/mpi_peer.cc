// The same calls by MPI; built once for each MPI library.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <exception>

#include "measure.h"

namespace ropewalk::peers {
namespace {

class MpiRunner final : public PlainRunner {
 public:
  MpiRunner(const PeerOptions& options, const tools::BenchShape& shape)
      : PlainRunner(options, shape),
        collective_(options.kind.collective),
        count_(static_cast<int>(shape.count)) {}

  // Errors abort the job, which is MPI's default.
  void run() override {
    switch (collective_) {
      case Collective::all_reduce:
        MPI_Allreduce(MPI_IN_PLACE, out(), count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
      case Collective::reduce_scatter:
        MPI_Reduce_scatter_block(in(), out(), count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
      case Collective::all_gather:
        MPI_Allgather(in(), count_, MPI_FLOAT, out(), count_, MPI_FLOAT, MPI_COMM_WORLD);
        return;
      default:
        MPI_Bcast(out(), count_, MPI_FLOAT, 0, MPI_COMM_WORLD);
    }
  }

 private:
  Collective collective_;
  int count_;
};

int run_peer(int argc, char** argv) {
  const PeerOptions options = parse_options(argc, argv);
  const Waiting waiting = bind_to_core(options, launched_rank());
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks != options.ranks || rank != launched_rank() || options.type != DataType::float32) {
    std::fprintf(stderr, "mpi_peer: started as rank %d of %d, want %d of %d, float32\n", rank,
                 ranks, launched_rank(), options.ranks);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  Segment segment(options.segment);
  const int64_t wrong = measure(
      options, rank, waiting, segment,
      [&](const tools::BenchShape& shape) { return std::make_unique<MpiRunner>(options, shape); });
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ropewalk::peers

int main(int argc, char** argv) {
  return ropewalk::peers::run_program("mpi_peer", ropewalk::peers::run_peer, argc, argv);
}
