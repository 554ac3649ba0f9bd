// Nonblocking and persistent collectives, and those with large counts: each must give what the
// MPI's own gives, whatever the program waits with, and with whatever else it has under way.
#include <algorithm>
#include <array>

#include "later_calls.h"
#include "testing.h"

namespace {

/// Waits in each of MPI's ways, in turns.
int wait_somehow(MPI_Request& request) {
  static int turn = 0;
  int ended = 0, index = 0;
  MPI_Status status;
  switch (turn++ % 13) {
    case 0:
      return MPI_Wait(&request, MPI_STATUS_IGNORE);
    case 1:
      while (ended == 0) MPI_Test(&request, &ended, &status);
      return MPI_SUCCESS;
    case 2:
      return MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
    case 3:
      while (ended == 0) MPI_Testall(1, &request, &ended, &status);
      return MPI_SUCCESS;
    case 4:
      return MPI_Waitany(1, &request, &index, &status);
    case 5:
      while (ended == 0) MPI_Testany(1, &request, &index, &ended, &status);
      return MPI_SUCCESS;
    case 6:
      return MPI_Waitsome(1, &request, &ended, &index, &status);
    case 7:
      while (ended == 0) MPI_Testsome(1, &request, &ended, &index, &status);
      return MPI_SUCCESS;
    case 8:
      while (ended == 0) MPI_Request_get_status(request, &ended, &status);
      return MPI_Wait(&request, &status);
    case 9:
      while (ended == 0) MPI_Request_get_status_all(1, &request, &ended, &status);
      return MPI_Wait(&request, &status);
    case 10:
      while (ended == 0) MPI_Request_get_status_any(1, &request, &index, &ended, &status);
      require(index == 0, "the request that has ended");
      return MPI_Wait(&request, &status);
    case 11:
      while (ended == 0) MPI_Request_get_status_some(1, &request, &ended, &index, &status);
      require(ended == 1 && index == 0, "the requests that have ended");
      return MPI_Wait(&request, &status);
    default:  // as a profiler that knows nothing of this one
      return PMPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

int end(bool ours, int status, MPI_Request& request) {
  if (status != MPI_SUCCESS) return status;
  const int waited = ours ? wait_somehow(request) : PMPI_Wait(&request, MPI_STATUS_IGNORE);
  require(request == MPI_REQUEST_NULL, "a request that has ended is null");
  return waited;
}

// `LATER(Ibcast, ...)`: by the program's name, or by the MPI's own; then waits.
#define LATER(name, ...)                                                               \
  [&] {                                                                                \
    MPI_Request request = MPI_REQUEST_NULL;                                            \
    const int status =                                                                 \
        ours ? MPI_##name(__VA_ARGS__, &request) : PMPI_##name(__VA_ARGS__, &request); \
    return end(ours, status, request);                                                 \
  }()

void test_moves(const Job& job, const Type& type, int count) {
  const auto ranks = static_cast<size_t>(job.size);
  const size_t part = type.extent * static_cast<size_t>(count);
  const std::string what = " of " + std::to_string(count) + " " + type.name + " in " + job.name;
  const Memory one = pattern(part, job.rank), many = pattern(part * ranks, job.rank + 50);
  const MPI_Datatype t = type.handle;
  const int root = job.size - 1;
  const bool at_root = job.rank == root;
  compare("Ibcast" + what, {}, one, [&](bool ours, void*, void* out) {
    return LATER(Ibcast, out, count, t, root, job.comm);
  });
  compare("Igather" + what, one, many, [&](bool ours, void* in, void* out) {
    return LATER(Igather, at_root ? MPI_IN_PLACE : in, count, t, out, count, t, root, job.comm);
  });
  compare("Iscatter" + what, many, one, [&](bool ours, void* in, void* out) {
    return LATER(Iscatter, in, count, t, at_root ? MPI_IN_PLACE : out, count, t, root, job.comm);
  });
  compare("Iallgather" + what, one, many, [&](bool ours, void* in, void* out) {
    return LATER(Iallgather, in, count, t, out, count, t, job.comm);
  });
  compare("Ialltoall" + what, many, many, [&](bool ours, void* in, void* out) {
    return LATER(Ialltoall, in, count, t, out, count, t, job.comm);
  });
  compare("Ialltoall in place" + what, one, many, [&](bool ours, void*, void* out) {
    return LATER(Ialltoall, MPI_IN_PLACE, 0, t, out, count, t, job.comm);
  });
  std::vector<int> counts(ranks), at(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    counts[r] = count;
    at[r] = static_cast<int>(ranks - 1 - r) * count;
  }
  compare("Iallgatherv" + what, one, many, [&](bool ours, void* in, void* out) {
    return LATER(Iallgatherv, in, count, t, out, counts.data(), at.data(), t, job.comm);
  });
  compare("Ialltoallv" + what, many, many, [&](bool ours, void* in, void* out) {
    return LATER(Ialltoallv, in, counts.data(), at.data(), t, out, counts.data(), at.data(), t,
                 job.comm);
  });
}

/// Only the root knows all lengths: here of parts with gaps between them, the last first.
void test_parts(const Job& job, const Type& type, int count) {
  const Parts parts(job.size, [&](int r) { return r % 3 == 1 ? 0 : count + r; });
  const std::vector<int>&counts = parts.counts, &at = parts.at;
  const std::string what = "v of " + std::to_string(count) + " " + type.name + " in " + job.name;
  const size_t longest = type.extent * static_cast<size_t>(parts.end + job.size);
  const Memory one = pattern(longest, job.rank), many = pattern(longest * 2, job.rank + 50);
  const MPI_Datatype t = type.handle;
  const int own = counts[static_cast<size_t>(job.rank)];
  for (int root = 0; root < job.size; root += std::max(1, job.size - 1)) {
    const bool at_root = job.rank == root;
    const int* const known = at_root ? counts.data() : nullptr;
    compare("Igather" + what, one, many, [&](bool ours, void* in, void* out) {
      return LATER(Igatherv, in, own, t, out, known, at.data(), t, root, job.comm);
    });
    compare("Igather in place " + what, one, many, [&](bool ours, void* in, void* out) {
      return LATER(Igatherv, at_root ? MPI_IN_PLACE : in, own, t, out, known, at.data(), t, root,
                   job.comm);
    });
    compare("Iscatter" + what, many, one, [&](bool ours, void* in, void* out) {
      return LATER(Iscatterv, in, known, at.data(), t, out, own, t, root, job.comm);
    });
    compare("Iscatter in place " + what, many, one, [&](bool ours, void* in, void* out) {
      return LATER(Iscatterv, in, known, at.data(), t, at_root ? MPI_IN_PLACE : out, own, t, root,
                   job.comm);
    });
  }
}

void test_reductions(const Job& job, MPI_Datatype type, int bytes, int count) {
  const auto ranks = static_cast<size_t>(job.size);
  const auto n = static_cast<size_t>(count);
  const std::string what =
      " of " + std::to_string(count) + " of " + std::to_string(bytes) + " bytes in " + job.name;
  const Memory one = numbers(type, bytes, n, job.rank), other = numbers(type, bytes, n, 9);
  const Memory many = numbers(type, bytes, n * ranks, job.rank);
  const std::vector<int> counts(ranks, count);
  compare("Iallreduce" + what, one, other, [&](bool ours, void* in, void* out) {
    return LATER(Iallreduce, in, out, count, type, MPI_SUM, job.comm);
  });
  compare("Iallreduce in place" + what, {}, one, [&](bool ours, void*, void* out) {
    return LATER(Iallreduce, MPI_IN_PLACE, out, count, type, MPI_MAX, job.comm);
  });
  compare("Ireduce" + what, one, other, [&](bool ours, void* in, void* out) {
    return LATER(Ireduce, in, out, count, type, MPI_SUM, 0, job.comm);
  });
  compare("Ireduce_scatter_block" + what, many, other, [&](bool ours, void* in, void* out) {
    return LATER(Ireduce_scatter_block, in, out, count, type, MPI_SUM, job.comm);
  });
  compare("Ireduce_scatter" + what, many, other, [&](bool ours, void* in, void* out) {
    return LATER(Ireduce_scatter, in, out, counts.data(), type, MPI_SUM, job.comm);
  });
}

/// What was sent may change between runs; messages and collectives are started and waited for
/// together.
void test_persistent_ones_together(const Job& job) {
  constexpr int kLength = 5000;
  std::vector<int> in(kLength), out(kLength), sent(1), received(1);
  const int next = (job.rank + 1) % job.size, last = (job.rank + job.size - 1) % job.size;
  std::array<MPI_Request, 4> requests;
  MPI_Allreduce_init(in.data(), out.data(), kLength, MPI_INT, MPI_SUM, job.comm, MPI_INFO_NULL,
                     &requests[0]);
  MPI_Send_init(sent.data(), 1, MPI_INT, next, 9, job.comm, &requests[1]);
  MPI_Recv_init(received.data(), 1, MPI_INT, last, 9, job.comm, &requests[2]);
  MPI_Barrier_init(job.comm, MPI_INFO_NULL, &requests[3]);
  for (int run = 0; run < 12; ++run) {
    std::fill(in.begin(), in.end(), run);
    sent[0] = 100 * run + job.rank;
    MPI_Startall(4, requests.data());
    for (int left = 4; left > 0;) {
      int index = 0, ended = 1;
      std::array<int, 4> indices{};
      if (run % 2 == 0)
        MPI_Waitany(4, requests.data(), &index, MPI_STATUS_IGNORE);
      else
        MPI_Waitsome(4, requests.data(), &ended, indices.data(), MPI_STATUSES_IGNORE);
      require(index != MPI_UNDEFINED && ended > 0, "some of the persistent ones have ended");
      left -= ended;
    }
    require(out.back() == run * job.size && received[0] == 100 * run + last,
            "persistent ones together");
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

/// Ranks must make them in the same order, but may start and free them in any.
void test_order_of_persistent_ones(const Job& job) {
  for (int round = 1; round <= 4; ++round) {
    int value = job.rank == 0 ? round : -1, in = round, out = 0;
    std::array<MPI_Request, 3> requests;
    MPI_Bcast_init(&value, 1, MPI_INT, 0, job.comm, MPI_INFO_NULL, &requests[0]);
    MPI_Barrier_init(job.comm, MPI_INFO_NULL, &requests[1]);
    MPI_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, job.comm, MPI_INFO_NULL, &requests[2]);
    std::rotate(requests.begin(), requests.begin() + job.rank % 3, requests.end());
    for (MPI_Request& request : requests) MPI_Start(&request);
    MPI_Waitall(3, requests.data(), MPI_STATUSES_IGNORE);
    require(value == round && out == round * job.size, "persistent ones in another order");
    for (size_t i = 0; i < 3; ++i)
      if (round < 3 || static_cast<int>(i) != job.rank % 3) MPI_Request_free(&requests[i]);
    // What is left is not freed before the end of the communicator.
  }
}

/// Ones that outlive their communicator.
void test_persistent_ones_of_freed_communicator(const Job& job) {
  MPI_Comm copy;
  MPI_Comm_dup(job.comm, &copy);
  int in = 1, out = 0, sum = 0;
  std::array<MPI_Request, 2> requests;
  MPI_Allreduce_init(&in, &out, 1, MPI_INT, MPI_SUM, copy, MPI_INFO_NULL, &requests[0]);
  MPI_Allreduce_init(&in, &sum, 1, MPI_INT, MPI_SUM, copy, MPI_INFO_NULL, &requests[1]);
  MPI_Comm_free(&copy);
  for (in = 1; in < 4; ++in) {
    require(MPI_Startall(2, requests.data()) == MPI_SUCCESS, "a start without a communicator");
    MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
    require(out == in * job.size && sum == out, "persistent ones without a communicator");
  }
  for (MPI_Request& request : requests) MPI_Request_free(&request);
}

#if MPI_VERSION >= 4
/// Runs it twice, and frees it.
int use(int status, MPI_Request request) {
  for (int run = 0; run < 2 && status == MPI_SUCCESS; ++run) {
    const MPI_Request before = request;
    status = MPI_Start(&request);
    if (status == MPI_SUCCESS) status = wait_somehow(request);
    require(request == before, "a persistent request stays");
  }
  return status == MPI_SUCCESS ? MPI_Request_free(&request) : status;
}
// `KEPT(Bcast, ...)`: made, and run, beside the MPI's blocking one: MPICH 4.0's own persistent ones
// hang when they are run again.
#define KEPT(Name, ...)                                                           \
  [&] {                                                                           \
    if (!ours) return PMPI_##Name##_c(__VA_ARGS__);                               \
    MPI_Request request = MPI_REQUEST_NULL;                                       \
    const int status = MPI_##Name##_init_c(__VA_ARGS__, MPI_INFO_NULL, &request); \
    return use(status, request);                                                  \
  }()

void test_large_counts(const Job& job, const Type& type, MPI_Count count) {
  const auto ranks = static_cast<size_t>(job.size);
  const size_t part = type.extent * static_cast<size_t>(count);
  const Memory one = pattern(part, job.rank), many = pattern(part * ranks, job.rank + 50);
  const Memory sums = numbers(MPI_INT, 4, static_cast<size_t>(count) * ranks, job.rank);
  const MPI_Datatype t = type.handle;
  const std::vector<MPI_Count> counts(ranks, count);
  std::vector<MPI_Aint> at(ranks);
  for (size_t r = 0; r < ranks; ++r) at[r] = static_cast<MPI_Aint>(ranks - 1 - r) * count;
  const auto both = [&](const char* name, const Memory& in, const Memory& out, auto call) {
    compare(std::string(name) + "_c of " + type.name + " in " + job.name, in, out, call);
  };
#define BOTH(Name, name, in_memory, out_memory, ...)                                               \
  both(#Name, in_memory, out_memory,                                                               \
       [&](bool ours, void* in, void* out) { return (void)in, CALL(Name##_c, __VA_ARGS__); });     \
  both("I" #name, in_memory, out_memory,                                                           \
       [&](bool ours, void* in, void* out) { return (void)in, LATER(I##name##_c, __VA_ARGS__); }); \
  both(#Name "_init", in_memory, out_memory,                                                       \
       [&](bool ours, void* in, void* out) { return (void)in, KEPT(Name, __VA_ARGS__); })
  BOTH(Bcast, bcast, {}, one, out, count, t, 0, job.comm);
  BOTH(Gather, gather, one, many, in, count, t, out, count, t, 0, job.comm);
  BOTH(Scatter, scatter, many, one, in, count, t, out, count, t, 0, job.comm);
  BOTH(Allgather, allgather, one, many, in, count, t, out, count, t, job.comm);
  BOTH(Allgatherv, allgatherv, one, many, in, count, t, out, counts.data(), at.data(), t, job.comm);
  BOTH(Alltoall, alltoall, many, many, in, count, t, out, count, t, job.comm);
  BOTH(Alltoallv, alltoallv, many, many, in, counts.data(), at.data(), t, out, counts.data(),
       at.data(), t, job.comm);
  BOTH(Allreduce, allreduce, sums, sums, in, out, count, MPI_INT, MPI_SUM, job.comm);
  BOTH(Reduce, reduce, sums, sums, in, out, count, MPI_INT, MPI_SUM, 0, job.comm);
  BOTH(Reduce_scatter, reduce_scatter, sums, sums, in, out, counts.data(), MPI_INT, MPI_SUM,
       job.comm);
  BOTH(Reduce_scatter_block, reduce_scatter_block, sums, sums, in, out, count, MPI_INT, MPI_SUM,
       job.comm);
  BOTH(Gatherv, gatherv, one, many, in, count, t, out, counts.data(), at.data(), t, 0, job.comm);
  BOTH(Scatterv, scatterv, many, one, in, counts.data(), at.data(), t, out, count, t, 0, job.comm);
#undef BOTH
}
#endif

/// Many at once, with messages among them and blocking collectives meanwhile; waited for in another
/// order than they were started in.
void test_many_at_once(const Job& job, MPI_Comm other) {
  constexpr int kCalls = 12, kLength = 20000;
  std::array<std::vector<int>, kCalls> data;
  std::vector<MPI_Request> requests;
  for (int i = 0; i < kCalls; ++i) {
    data[static_cast<size_t>(i)].assign(kLength, job.rank + i);
    MPI_Iallreduce(MPI_IN_PLACE, data[static_cast<size_t>(i)].data(), kLength, MPI_INT, MPI_MAX,
                   i % 2 == 0 ? job.comm : other, &requests.emplace_back());
  }
  const int next = (job.rank + 1) % job.size, last = (job.rank + job.size - 1) % job.size;
  std::vector<int> sent(kLength, job.rank), received(kLength);
  MPI_Isend(sent.data(), kLength, MPI_INT, next, 3, job.comm, &requests.emplace_back());
  MPI_Irecv(received.data(), kLength, MPI_INT, last, 3, job.comm, &requests.emplace_back());
  int in = 1, out = 0;
  MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, job.comm);
  require(out == job.size, "a blocking collective meanwhile");
  std::ranges::reverse(requests);
  for (int left = static_cast<int>(requests.size()) - 4; left > 0; --left) {
    int index = MPI_UNDEFINED;
    MPI_Waitany(static_cast<int>(requests.size()), requests.data(), &index, MPI_STATUS_IGNORE);
    require(index != MPI_UNDEFINED, "one of many has ended");
  }
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  for (int i = 0; i < kCalls; ++i)
    require(data[static_cast<size_t>(i)].back() == job.size - 1 + i, "one of many at once");
  require(received.back() == last, "a message among collectives");
}

/// Nobody waits for what a program has freed; it ends nevertheless.
void test_freed_requests(const Job& job) {
  static std::vector<int> data(1 << 16);
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_INT, MPI_SUM,
                 job.comm, &request);
  MPI_Request_free(&request);
  require(request == MPI_REQUEST_NULL, "a freed request is null");
  MPI_Barrier(job.comm);
}

/// A nonblocking call waits for nobody, also the first of a communicator: the last rank starts its
/// own when the others have told it that they have.
void test_waits_for_nobody(const Job& job) {
  MPI_Comm copy;
  MPI_Comm_dup(job.comm, &copy);
  int in = 1, out = 0, message = 0;
  MPI_Request request;
  const int last = job.size - 1;
  for (int other = 0; job.rank == last && other < last; ++other)
    MPI_Recv(&message, 1, MPI_INT, other, 7, job.comm, MPI_STATUS_IGNORE);
  MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, copy, &request);
  if (job.rank != last) MPI_Send(&message, 1, MPI_INT, last, 7, job.comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(out == job.size, "the first nonblocking call of a communicator");
  MPI_Comm_free(&copy);
}

/// MPIs match nonblocking calls with each other only, so programs run that start one before a
/// blocking call here, and after it there.
void test_order_beside_blocking_calls(const Job& job) {
  int in = 1, out = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (job.rank != 0) MPI_Barrier(job.comm);
  MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, job.comm, &request);
  if (job.rank == 0) MPI_Barrier(job.comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(out == job.size, "a nonblocking call among blocking ones");
}

void test_barrier(const Job& job) {
  MPI_Request request;
  require(MPI_Ibarrier(job.comm, &request) == MPI_SUCCESS, "Ibarrier");
  require(end(true, MPI_SUCCESS, request) == MPI_SUCCESS, "the wait for Ibarrier");
}

/// A type that is freed while the collective that moves it is under way.
void test_freed_type(const Job& job) {
  MPI_Datatype strided;
  MPI_Type_vector(4, 1, 2, MPI_INT, &strided);
  MPI_Type_commit(&strided);
  std::array<int, 8> data{};
  for (size_t i = 0; i < data.size(); ++i) data[i] = job.rank == 0 ? static_cast<int>(i) : -1;
  MPI_Request request;
  MPI_Ibcast(data.data(), 1, strided, 0, job.comm, &request);
  MPI_Type_free(&strided);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(data[6] == 6 && data[7] == (job.rank == 0 ? 7 : -1), "a type that was freed");
}

/// A communicator that is freed while its collective is under way.
void test_freed_communicator(const Job& job) {
  MPI_Comm copy;
  MPI_Comm_dup(job.comm, &copy);
  MPI_Barrier(copy);  // links its ranks
  int in = 1, out = 0;
  MPI_Request request;
  MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, copy, &request);
  MPI_Comm_free(&copy);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  require(out == job.size, "a collective of a communicator that was freed");
}

void test_wrong_arguments(const Job& job) {
  MPI_Comm copy;
  MPI_Comm_dup(job.comm, &copy);
  MPI_Barrier(copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  int data = 0, error = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Error_class(MPI_Ibcast(&data, 1, MPI_INT, job.size, copy, &request), &error);
  require(error == MPI_ERR_ROOT, "a root that is none");
  MPI_Comm_free(&copy);
}

}  // namespace

// As a profiler does that is linked with the program.
int MPI_Init(int* argc, char*** argv) {
  return PMPI_Init(argc, argv);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  Job job{MPI_COMM_WORLD, "MPI_COMM_WORLD", 0, 0};
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &job.size);
  job.rank = world_rank;
  for (const Type& type : make_types())
    for (const int count : {0, 5, 3000})
      if (count == 5 || std::string(type.name) == "int") {
        test_moves(job, type, count);
        test_parts(job, type, count);
      }
  for (const int count : {0, 1, 6000}) {
    test_reductions(job, MPI_INT, 4, count);
    test_reductions(job, MPI_DOUBLE, 8, count);
  }
#if MPI_VERSION >= 4
  for (const Type& type : make_types()) test_large_counts(job, type, 7);
#endif
  if (MPI_Allreduce_init != nullptr) {  // Open MPI 4 has none
    test_persistent_ones_together(job);
    test_order_of_persistent_ones(job);
    test_persistent_ones_of_freed_communicator(job);
  }
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  MPI_Barrier(other);
  for (int round = 0; round < 5; ++round) test_many_at_once(job, other);
  MPI_Comm_free(&other);
  test_barrier(job);
  test_waits_for_nobody(job);
  test_order_beside_blocking_calls(job);
  test_freed_type(job);
  test_freed_communicator(job);
  test_wrong_arguments(job);
  test_freed_requests(job);
  MPI_Finalize();
  if (world_rank == 0) std::puts("all collectives agree");
}
