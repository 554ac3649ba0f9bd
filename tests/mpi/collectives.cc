// Every collective that Ropewalk takes from the MPI, called as a program does, and by the profiling
// interface, which is the MPI's own: both must give the same. Types, places and communicators of
// many kinds; `tests/mpi/run` starts it with Ropewalk in front.
#include <algorithm>

#include "testing.h"

namespace {

void test_moves(const Job& job, const Type& type, int count) {
  const auto ranks = static_cast<size_t>(job.size);
  const size_t part = type.extent * static_cast<size_t>(count);
  const std::string what = " of " + std::to_string(count) + " " + type.name + " in " + job.name;
  const Memory one = pattern(part, job.rank), many = pattern(part * ranks, job.rank + 50);
  const MPI_Datatype t = type.handle;
  for (int root = 0; root < job.size; root += std::max(1, job.size - 1)) {
    const bool at_root = job.rank == root;
    compare("Bcast" + what, {}, one, [&](bool ours, void*, void* out) {
      return CALL(Bcast, out, count, t, root, job.comm);
    });
    compare("Gather" + what, one, many, [&](bool ours, void* in, void* out) {
      return CALL(Gather, in, count, t, at_root ? out : nullptr, count, t, root, job.comm);
    });
    compare("Gather in place" + what, one, many, [&](bool ours, void* in, void* out) {
      return CALL(Gather, at_root ? MPI_IN_PLACE : in, count, t, out, count, t, root, job.comm);
    });
    compare("Scatter" + what, many, one, [&](bool ours, void* in, void* out) {
      return CALL(Scatter, at_root ? in : nullptr, count, t, out, count, t, root, job.comm);
    });
    compare("Scatter in place" + what, many, one, [&](bool ours, void* in, void* out) {
      return CALL(Scatter, in, count, t, at_root ? MPI_IN_PLACE : out, count, t, root, job.comm);
    });
  }
  compare("Allgather" + what, one, many, [&](bool ours, void* in, void* out) {
    return CALL(Allgather, in, count, t, out, count, t, job.comm);
  });
  compare("Allgather in place" + what, one, many, [&](bool ours, void*, void* out) {
    return CALL(Allgather, MPI_IN_PLACE, 0, t, out, count, t, job.comm);
  });
  compare("Alltoall" + what, many, many, [&](bool ours, void* in, void* out) {
    return CALL(Alltoall, in, count, t, out, count, t, job.comm);
  });
  compare("Alltoall in place" + what, one, many, [&](bool ours, void*, void* out) {
    return CALL(Alltoall, MPI_IN_PLACE, 0, t, out, count, t, job.comm);
  });
}

/// Parts of different lengths, the last first and with gaps between them.
void test_parts(const Job& job, const Type& type, int count) {
  const auto ranks = static_cast<size_t>(job.size);
  const Parts parts(job.size, [&](int r) { return count + r; });
  const std::vector<int>&counts = parts.counts, &at = parts.at;
  std::vector<int> sent(ranks), sent_at(ranks), got(ranks);
  const std::string what = "v of " + std::to_string(count) + " " + type.name + " in " + job.name;
  const size_t longest = type.extent * static_cast<size_t>(parts.end + job.size);
  const Memory one = pattern(longest, job.rank), many = pattern(longest * 2, job.rank + 50);
  const MPI_Datatype t = type.handle;
  const int own = counts[static_cast<size_t>(job.rank)];
  for (int root = 0; root < job.size; root += std::max(1, job.size - 1)) {
    const bool at_root = job.rank == root;
    const int* const known = at_root ? counts.data() : nullptr;
    compare("Gather" + what, one, many, [&](bool ours, void* in, void* out) {
      return CALL(Gatherv, in, own, t, out, known, at.data(), t, root, job.comm);
    });
    compare("Gather in place " + what, one, many, [&](bool ours, void* in, void* out) {
      return CALL(Gatherv, at_root ? MPI_IN_PLACE : in, own, t, out, known, at.data(), t, root,
                  job.comm);
    });
    compare("Scatter" + what, many, one, [&](bool ours, void* in, void* out) {
      return CALL(Scatterv, in, known, at.data(), t, out, own, t, root, job.comm);
    });
    compare("Scatter in place " + what, many, one, [&](bool ours, void* in, void* out) {
      return CALL(Scatterv, in, known, at.data(), t, at_root ? MPI_IN_PLACE : out, own, t, root,
                  job.comm);
    });
  }
  compare("Allgather" + what, one, many, [&](bool ours, void* in, void* out) {
    return CALL(Allgatherv, in, own, t, out, counts.data(), at.data(), t, job.comm);
  });
  compare("Allgather in place " + what, one, many, [&](bool ours, void*, void* out) {
    return CALL(Allgatherv, MPI_IN_PLACE, 0, t, out, counts.data(), at.data(), t, job.comm);
  });
  for (size_t r = 0; r < ranks; ++r) {
    sent[r] = (static_cast<int>(r) * 2 + job.rank) % 4 * (count > 0 ? 1 : 0);
    got[r] = (job.rank * 2 + static_cast<int>(r)) % 4 * (count > 0 ? 1 : 0);
    sent_at[r] = 4 * static_cast<int>(ranks - 1 - r);
  }
  const Memory wide = pattern(type.extent * 4 * (ranks + 1), job.rank + 9);
  compare("Alltoall" + what, wide, wide, [&](bool ours, void* in, void* out) {
    return CALL(Alltoallv, in, sent.data(), sent_at.data(), t, out, got.data(), sent_at.data(), t,
                job.comm);
  });
}

void test_reductions(const Job& job, MPI_Datatype type, int bytes, MPI_Op op, const char* op_name,
                     int count) {
  const auto ranks = static_cast<size_t>(job.size);
  const auto n = static_cast<size_t>(count);
  const std::string what = std::string(" ") + op_name + " of " + std::to_string(count) + " of " +
                           std::to_string(bytes) + " bytes in " + job.name;
  const Memory one = numbers(type, bytes, n, job.rank), other = numbers(type, bytes, n, 9);
  const Memory many = numbers(type, bytes, n * ranks, job.rank);
  compare("Allreduce" + what, one, other, [&](bool ours, void* in, void* out) {
    return CALL(Allreduce, in, out, count, type, op, job.comm);
  });
  compare("Allreduce in place" + what, {}, one, [&](bool ours, void*, void* out) {
    return CALL(Allreduce, MPI_IN_PLACE, out, count, type, op, job.comm);
  });
  // MPICH 4.0 itself crashes in place at another root, where calls are long.
  const int root = count < 6000 ? job.size - 1 : 0;
  compare("Reduce" + what, one, other, [&](bool ours, void* in, void* out) {
    return CALL(Reduce, in, out, count, type, op, root, job.comm);
  });
  compare("Reduce in place" + what, one, other, [&](bool ours, void* in, void* out) {
    return CALL(Reduce, job.rank == root ? MPI_IN_PLACE : in, out, count, type, op, root, job.comm);
  });
  compare("Reduce_scatter_block" + what, many, other, [&](bool ours, void* in, void* out) {
    return CALL(Reduce_scatter_block, in, out, count, type, op, job.comm);
  });
  std::vector<int> counts(ranks, count);
  counts.front() = 0;
  compare("Reduce_scatter" + what, many, other, [&](bool ours, void* in, void* out) {
    return CALL(Reduce_scatter, in, out, counts.data(), type, op, job.comm);
  });
  // In place: what lies behind the result has no defined value.
  Memory ours_out = many, mpi_out = many;
  MPI_Reduce_scatter_block(MPI_IN_PLACE, ours_out.data(), count, type, op, job.comm);
  PMPI_Reduce_scatter_block(MPI_IN_PLACE, mpi_out.data(), count, type, op, job.comm);
  require(std::memcmp(ours_out.data(), mpi_out.data(), n * static_cast<size_t>(bytes)) == 0,
          "Reduce_scatter_block in place" + what);
}

/// The first that is not 0: associative, not commutative.
void first_number(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i)
    if (static_cast<int*>(in)[i] != 0) static_cast<int*>(inout)[i] = static_cast<int*>(in)[i];
}

void test_user_op(const Job& job) {
  MPI_Op op;
  MPI_Op_create(first_number, 0, &op);
  int in = 100 + job.rank, out = 0;
  MPI_Allreduce(&in, &out, 1, MPI_INT, op, job.comm);
  require(out == 100, "an operation that does not commute, in " + job.name);
  MPI_Op_free(&op);
}

void test_all_reductions(const Job& job) {
  struct {
    MPI_Op op;
    const char* name;
  } const sums[] = {{MPI_SUM, "SUM"}, {MPI_PROD, "PROD"}, {MPI_MIN, "MIN"}, {MPI_MAX, "MAX"}};
  struct {
    MPI_Op op;
    const char* name;
  } const bits[] = {{MPI_LAND, "LAND"}, {MPI_LOR, "LOR"}, {MPI_LXOR, "LXOR"},
                    {MPI_BAND, "BAND"}, {MPI_BOR, "BOR"}, {MPI_BXOR, "BXOR"}};
  struct {
    MPI_Datatype type;
    int bytes;
  } const types[] = {{MPI_INT, 4},   {MPI_DOUBLE, 8},      {MPI_FLOAT, 4},        {MPI_LONG, 8},
                     {MPI_SHORT, 2}, {MPI_SIGNED_CHAR, 1}, {MPI_UNSIGNED_LONG, 8}};
  for (const auto& [op, name] : sums)
    for (const int count : {0, 1, 13, 6000}) test_reductions(job, MPI_INT, 4, op, name, count);
  for (const auto& [type, bytes] : types)
    for (const auto& [op, name] : sums) test_reductions(job, type, bytes, op, name, 13);
  for (const auto& [op, name] : bits) test_reductions(job, MPI_INT, 4, op, name, 13);
  test_reductions(job, MPI_C_DOUBLE_COMPLEX, 16, MPI_SUM, "complex SUM", 6000);
  test_reductions(job, MPI_BYTE, 1, MPI_BXOR, "BXOR", 13);
}

void test_job(MPI_Comm comm, const std::string& name, bool briefly) {
  Job job{comm, name, 0, 0};
  MPI_Comm_rank(comm, &job.rank);
  MPI_Comm_size(comm, &job.size);
  require(MPI_Barrier(comm) == MPI_SUCCESS, "Barrier");
  // The MPI may wait busily, which takes long where others compute: what differs little is left
  // out.
  for (const Type& type : make_types())
    for (const int count : {0, 1, 5, 3000}) {
      const bool is_usual = std::string(type.name) == "int" || std::string(type.name) == "strided";
      if (count != 5 && (briefly || !is_usual)) continue;
      test_moves(job, type, count);
      test_parts(job, type, count);
    }
  if (briefly) return test_reductions(job, MPI_DOUBLE, 8, MPI_SUM, "SUM", 100);
  test_all_reductions(job);
  test_user_op(job);
}

/// A root that describes its data in another way than the others: all must decide alike.
void test_different_layouts() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Datatype strided;
  MPI_Type_vector(4, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  int wide[] = {1, 0, 2, 0, 3, 0, 4, 0}, dense[] = {0, 0, 0, 0};
  if (rank == 0)
    MPI_Bcast(wide, 1, strided, 0, MPI_COMM_WORLD);
  else
    MPI_Bcast(dense, 4, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0) require(dense[0] == 1 && dense[3] == 4, "a root with another type");
  MPI_Type_free(&strided);
}

/// A message that needs its receiver's help, while that is in a collective already.
void test_the_mpi_goes_on() {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < 2) return;
  std::vector<char> message(8 << 20, static_cast<char>(rank));
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 0)
    MPI_Irecv(message.data(), static_cast<int>(message.size()), MPI_CHAR, 1, 0, MPI_COMM_WORLD,
              &request);
  if (rank == 1)
    MPI_Send(message.data(), static_cast<int>(message.size()), MPI_CHAR, 0, 0, MPI_COMM_WORLD);
  int in = 1, out = 0;
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(out == size && message.back() == (rank < 2 ? 1 : rank), "a message during a collective");
}

void test_memory() {
  char* memory = nullptr;
  require(MPI_Alloc_mem(1 << 20, MPI_INFO_NULL, &memory) == MPI_SUCCESS, "Alloc_mem");
  memory[(1 << 20) - 1] = 1;
  MPI_Allreduce(MPI_IN_PLACE, memory, 1 << 18, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  require(MPI_Free_mem(memory) == MPI_SUCCESS, "Free_mem");
}

/// Communicators come and go, and some ranks free theirs early.
void test_many_communicators() {
  for (int i = 0; i < 40; ++i) {
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    int in = i, out = 0;
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_MAX, copy);
    require(out == i, "a duplicate");
    MPI_Comm_free(&copy);
  }
}

/// What goes over the MPI on every rank, and is told in the report.
void test_what_is_never_taken() {
  int rank = 0, size = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Scan(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  require(sum == rank * (rank + 1) / 2, "Scan");
  const auto ranks = static_cast<size_t>(size);
  std::vector<int> in(ranks, rank), out(ranks), counts(ranks, 1), at;
  for (int r = 0; r < size; ++r) at.push_back(r * static_cast<int>(sizeof(int)));
  const std::vector<MPI_Datatype> types(ranks, MPI_INT);
  MPI_Alltoallw(in.data(), counts.data(), at.data(), types.data(), out.data(), counts.data(),
                at.data(), types.data(), MPI_COMM_WORLD);
  require(out.back() == size - 1, "Alltoallw");
}

void test_wrong_arguments() {
  MPI_Comm copy;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  int data = 0, out = 0, size = 0, error = 0;
  MPI_Comm_size(copy, &size);
  const auto class_of = [&](int status) {
    MPI_Error_class(status, &error);
    return error;
  };
  require(class_of(MPI_Bcast(&data, 1, MPI_INT, size, copy)) == MPI_ERR_ROOT,
          "a root that is none");
  require(class_of(MPI_Bcast(&data, -1, MPI_INT, 0, copy)) == MPI_ERR_COUNT, "a negative count");
  require(class_of(MPI_Bcast(&data, 1, MPI_DATATYPE_NULL, 0, copy)) == MPI_ERR_TYPE, "no type");
  require(class_of(MPI_Allreduce(&data, &out, 1, MPI_DOUBLE, MPI_BAND, copy)) == MPI_ERR_OP,
          "bits of a double");
  MPI_Comm_free(&copy);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  test_job(MPI_COMM_WORLD, "MPI_COMM_WORLD", false);
  MPI_Comm reversed, halves;
  MPI_Comm_split(MPI_COMM_WORLD, 0, size - world_rank, &reversed);
  test_job(reversed, "the reverse", true);
  MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &halves);
  test_job(halves, "every other rank", true);
  MPI_Comm_free(&reversed);
  test_different_layouts();
  test_the_mpi_goes_on();
  test_memory();
  test_many_communicators();
  test_what_is_never_taken();
  test_wrong_arguments();
  MPI_Finalize();  // `halves` is not freed
  if (world_rank == 0) std::puts("all collectives agree");
}
