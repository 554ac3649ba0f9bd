// Each function serves one collective of MPI: it tells what this rank's arguments mean as a Call.
// Whether a call is taken depends only on what MPI wants to be the same on all ranks; the layout of
// types, and whether a buffer is in place, are each rank's own. What is wrong with the arguments of
// a rank the MPI shall say.
#include "collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "bytes.h"
#include "channel.h"

namespace ropewalk::mpi {
namespace {

bool is_in_place(const void* buffer) {
  return buffer == MPI_IN_PLACE;
}

bool are_valid(int count, MPI_Datatype type) {
  return count >= 0 && type != MPI_DATATYPE_NULL;
}

bool are_valid(const int* counts, MPI_Datatype type, int ranks) {
  if (counts == nullptr || type == MPI_DATATYPE_NULL) return false;
  return std::all_of(counts, counts + ranks, [](int count) { return count >= 0; });
}

std::vector<size_t> scaled(const int* counts, int ranks, size_t by) {
  std::vector<size_t> result(counts, counts + ranks);
  for (size_t& count : result) count *= by;
  return result;
}

size_t sum(const std::vector<size_t>& counts, size_t until) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(until), size_t{0});
}

int fail(MPI_Comm comm, const Channel& channel, const char* what) {
  fmt::print(stderr, "ropewalk: MPI communicator of {} ranks: {}\n", channel.size(), what);
  pmpi.Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

/// Runs `ours` where the call can be taken, else `theirs`, the MPI's own. `ours` gives why it has
/// done nothing, or `none`.
template <class Ours, class Theirs>
int serve(Kind kind, MPI_Comm comm, const Ours& ours, const Theirs& theirs) {
  Left left = Left::outside;
  if (session() != nullptr) {
    Channel* const channel = find_channel(comm);
    left = channel == nullptr ? Left::arguments : channel->left();
    if (left == Left::none) try {
        left = ours(*channel);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) return fail(comm, *channel, error.what());
        left = Left::arguments;  // nothing has been sent
      } catch (const std::bad_alloc&) {
        return fail(comm, *channel, "there is no memory left");
      }
  }
  count_call(kind, left);
  return left == Left::none ? MPI_SUCCESS : theirs();
}

// ---- Reductions ----

struct Reduction {
  const Type* type = nullptr;
  ReduceOp op;
  Left left = Left::none;
};

Reduction reduction(MPI_Op op, MPI_Datatype handle) {
  if (is_user_op(op)) return {nullptr, {}, Left::user_op};
  const Type* const type = find_type(handle);
  const auto known = type == nullptr ? std::nullopt : find_op(op, *type);
  if (!known) return {nullptr, {}, Left::type};
  return {type, *known, Left::none};
}

Call reducing(Collective collective, const Reduction& of, const void* in, void* out, size_t count) {
  Call call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = count * of.type->elements;
  call.type = of.type->element;
  call.op = of.op;
  return call;
}

int take_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const Reduction of = reduction(op, type);
    if (of.left != Left::none) return of.left;
    if (count < 0) return Left::arguments;
    channel.run(reducing(Collective::all_reduce, of, is_in_place(in) ? out : in, out,
                         static_cast<size_t>(count)));
    return Left::none;
  };
  return serve(Kind::Allreduce, comm, ours,
               [&] { return pmpi.Allreduce(in, out, count, type, op, comm); });
}

int take_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const Reduction of = reduction(op, type);
    if (of.left != Left::none) return of.left;
    if (count < 0) return Left::arguments;
    Call call = reducing(Collective::reduce, of, is_in_place(in) ? out : in, out,
                         static_cast<size_t>(count));
    call.root = root;
    channel.run(call);
    return Left::none;
  };
  return serve(Kind::Reduce, comm, ours,
               [&] { return pmpi.Reduce(in, out, count, type, op, root, comm); });
}

/// MPI gives the result in place at the buffer's begin, not in this rank's part.
void reduce_scatter(Channel& channel, Call call, const void* in, void* out, size_t own_bytes) {
  if (!is_in_place(in)) return channel.run(call);
  const std::unique_ptr<std::byte[]> result(new std::byte[own_bytes + 1]);
  call.in = out;
  call.out = result.get();
  channel.run(call);
  if (own_bytes > 0) std::memcpy(out, result.get(), own_bytes);
}

int take_Reduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const Reduction of = reduction(op, type);
    if (of.left != Left::none) return of.left;
    if (!are_valid(counts, type, channel.size())) return Left::arguments;
    Call call = reducing(Collective::reduce_scatter, of, in, out, 0);
    call.counts = scaled(counts, channel.size(), of.type->elements);
    const auto own = static_cast<size_t>(counts[channel.rank()]);
    reduce_scatter(channel, std::move(call), in, out, own * of.type->bytes());
    return Left::none;
  };
  return serve(Kind::Reduce_scatter, comm, ours,
               [&] { return pmpi.Reduce_scatter(in, out, counts, type, op, comm); });
}

int take_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const Reduction of = reduction(op, type);
    if (of.left != Left::none) return of.left;
    if (count < 0) return Left::arguments;
    const auto own = static_cast<size_t>(count);
    reduce_scatter(channel, reducing(Collective::reduce_scatter, of, in, out, own), in, out,
                   own * of.type->bytes());
    return Left::none;
  };
  return serve(Kind::Reduce_scatter_block, comm, ours,
               [&] { return pmpi.Reduce_scatter_block(in, out, count, type, op, comm); });
}

// ---- Data that moves ----

Call moving(Collective collective, const void* in, void* out, size_t bytes, int root = 0) {
  Call call;
  call.collective = collective;
  call.in = in;
  call.out = out;
  call.count = bytes;
  call.type = DataType::uint8;
  call.root = root;
  return call;
}

/// Of a part for each rank.
Call moving_parts(Collective collective, const void* in, void* out, std::vector<size_t> bytes,
                  int root = 0) {
  Call call = moving(collective, in, out, 0, root);
  call.counts = std::move(bytes);
  return call;
}

bool is_rank(int root, const Channel& channel) {
  return root >= 0 && root < channel.size();
}

int take_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    if (!are_valid(count, type) || !is_rank(root, channel)) return Left::arguments;
    Bytes bytes(data, type, static_cast<size_t>(count));
    const bool is_root = channel.rank() == root;
    void* const at = is_root ? const_cast<std::byte*>(bytes.read()) : bytes.write();
    channel.run(moving(Collective::broadcast, at, at, bytes.size(), root));
    if (!is_root) bytes.finish();
    return Left::none;
  };
  return serve(Kind::Bcast, comm, ours, [&] { return pmpi.Bcast(data, count, type, root, comm); });
}

int take_Allgather(ROPEWALK_IN, ROPEWALK_OUT, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const auto ranks = static_cast<size_t>(channel.size());
    if (!are_valid(out_count, out_type)) return Left::arguments;
    if (!is_in_place(in) && !are_valid(in_count, in_type)) return Left::arguments;
    const auto part = static_cast<size_t>(out_count);
    Bytes to(out, out_type, ranks * part);
    Bytes from = is_in_place(in)
                     ? Bytes(out, out_type, part, part * static_cast<size_t>(channel.rank()))
                     : Bytes(in, in_type, static_cast<size_t>(in_count));
    if (from.size() * ranks != to.size()) return Left::arguments;
    channel.run(moving(Collective::all_gather, from.read(), to.write(), from.size()));
    to.finish();
    return Left::none;
  };
  return serve(Kind::Allgather, comm, ours, [&] {
    return pmpi.Allgather(in, in_count, in_type, out, out_count, out_type, comm);
  });
}

/// The part of this rank, at the place where it is received.
Bytes own_part(const Channel& channel, ROPEWALK_OUTS) {
  const int own = channel.rank();
  return Bytes(out, out_type, out_counts + own, out_at + own, 1);
}

int take_Allgatherv(ROPEWALK_IN, ROPEWALK_OUTS, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    if (!are_valid(out_counts, out_type, channel.size()) || out_at == nullptr)
      return Left::arguments;
    if (!is_in_place(in) && !are_valid(in_count, in_type)) return Left::arguments;
    Bytes to(out, out_type, out_counts, out_at, channel.size());
    Bytes from = is_in_place(in) ? own_part(channel, out, out_counts, out_at, out_type)
                                 : Bytes(in, in_type, static_cast<size_t>(in_count));
    std::vector<size_t> bytes = scaled(out_counts, channel.size(), bytes_of(out_type));
    if (from.size() != bytes[static_cast<size_t>(channel.rank())]) return Left::arguments;
    channel.run(moving_parts(Collective::all_gather, from.read(), to.write(), std::move(bytes)));
    to.finish();
    return Left::none;
  };
  return serve(Kind::Allgatherv, comm, ours, [&] {
    return pmpi.Allgatherv(in, in_count, in_type, out, out_counts, out_at, out_type, comm);
  });
}

int take_Gather(ROPEWALK_IN, ROPEWALK_OUT, int root, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    if (!is_rank(root, channel)) return Left::arguments;
    const bool is_root = channel.rank() == root;
    if (is_root && !are_valid(out_count, out_type)) return Left::arguments;
    if (!(is_root && is_in_place(in)) && !are_valid(in_count, in_type)) return Left::arguments;
    const auto part = is_root ? static_cast<size_t>(out_count) : 0;
    const auto own = static_cast<size_t>(channel.rank());
    Bytes from = is_in_place(in) ? Bytes(out, out_type, part, part * own)
                                 : Bytes(in, in_type, static_cast<size_t>(in_count));
    if (!is_root) {
      channel.run(moving(Collective::gather, from.read(), nullptr, from.size(), root));
      return Left::none;
    }
    Bytes to(out, out_type, part * static_cast<size_t>(channel.size()));
    channel.run(moving(Collective::gather, from.read(), to.write(), from.size(), root));
    to.finish();
    return Left::none;
  };
  return serve(Kind::Gather, comm, ours, [&] {
    return pmpi.Gather(in, in_count, in_type, out, out_count, out_type, root, comm);
  });
}

/// The bytes of each rank's part, of which only the root knows: `counts` matter there alone.
std::vector<size_t> parts_of_root(Channel& channel, const int* counts, MPI_Datatype type,
                                  int root) {
  std::vector<size_t> bytes(static_cast<size_t>(channel.size()));
  if (channel.rank() == root) bytes = scaled(counts, channel.size(), bytes_of(type));
  channel.run(moving(Collective::broadcast, bytes.data(), bytes.data(),
                     bytes.size() * sizeof(size_t), root));
  return bytes;
}

int take_Gatherv(ROPEWALK_IN, ROPEWALK_OUTS, int root, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    if (!is_rank(root, channel)) return Left::arguments;
    const bool is_root = channel.rank() == root;
    if (is_root && (!are_valid(out_counts, out_type, channel.size()) || out_at == nullptr))
      return Left::arguments;
    if (!(is_root && is_in_place(in)) && !are_valid(in_count, in_type)) return Left::arguments;
    Bytes from = is_in_place(in) ? own_part(channel, out, out_counts, out_at, out_type)
                                 : Bytes(in, in_type, static_cast<size_t>(in_count));
    std::vector<size_t> bytes = parts_of_root(channel, out_counts, out_type, root);
    if (!is_root) {
      channel.run(moving_parts(Collective::gather, from.read(), nullptr, std::move(bytes), root));
      return Left::none;
    }
    Bytes to(out, out_type, out_counts, out_at, channel.size());
    channel.run(moving_parts(Collective::gather, from.read(), to.write(), std::move(bytes), root));
    to.finish();
    return Left::none;
  };
  return serve(Kind::Gatherv, comm, ours, [&] {
    return pmpi.Gatherv(in, in_count, in_type, out, out_counts, out_at, out_type, root, comm);
  });
}

/// The root's part stays where it is, in place: `in` from there on.
void scatter(Channel& channel, Call call, size_t own_at, const void* out, Bytes to) {
  if (!is_in_place(out)) {
    call.out = to.write();
    channel.run(call);
    return to.finish();
  }
  call.out = const_cast<std::byte*>(static_cast<const std::byte*>(call.in)) + own_at;
  channel.run(call);
}

int take_Scatter(ROPEWALK_IN, ROPEWALK_OUT, int root, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    if (!is_rank(root, channel)) return Left::arguments;
    const bool is_root = channel.rank() == root;
    if (is_root && !are_valid(in_count, in_type)) return Left::arguments;
    if (!(is_root && is_in_place(out)) && !are_valid(out_count, out_type)) return Left::arguments;
    const auto ranks = static_cast<size_t>(channel.size());
    if (!is_root) {
      Bytes to(out, out_type, static_cast<size_t>(out_count));
      const size_t bytes = to.size();
      scatter(channel, moving(Collective::scatter, nullptr, nullptr, bytes, root), 0, out,
              std::move(to));
      return Left::none;
    }
    const auto part = static_cast<size_t>(in_count);
    Bytes from(in, in_type, part * ranks);
    const size_t bytes = from.size() / ranks;
    Bytes to = is_in_place(out) ? Bytes(in, in_type, 0)
                                : Bytes(out, out_type, static_cast<size_t>(out_count));
    scatter(channel, moving(Collective::scatter, from.read(), nullptr, bytes, root),
            bytes * static_cast<size_t>(root), out, std::move(to));
    return Left::none;
  };
  return serve(Kind::Scatter, comm, ours, [&] {
    return pmpi.Scatter(in, in_count, in_type, out, out_count, out_type, root, comm);
  });
}

int take_Scatterv(ROPEWALK_INS, ROPEWALK_OUT, int root, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    if (!is_rank(root, channel)) return Left::arguments;
    const bool is_root = channel.rank() == root;
    if (is_root && (!are_valid(in_counts, in_type, channel.size()) || in_at == nullptr))
      return Left::arguments;
    if (!(is_root && is_in_place(out)) && !are_valid(out_count, out_type)) return Left::arguments;
    std::vector<size_t> bytes = parts_of_root(channel, in_counts, in_type, root);
    const size_t own_at = sum(bytes, static_cast<size_t>(channel.rank()));
    Bytes to = is_in_place(out) ? Bytes(in, in_type, 0)
                                : Bytes(out, out_type, static_cast<size_t>(out_count));
    Call call = moving_parts(Collective::scatter, nullptr, nullptr, std::move(bytes), root);
    if (!is_root) {
      scatter(channel, std::move(call), own_at, out, std::move(to));
      return Left::none;
    }
    Bytes from(in, in_type, in_counts, in_at, channel.size());
    call.in = from.read();
    scatter(channel, std::move(call), own_at, out, std::move(to));
    return Left::none;
  };
  return serve(Kind::Scatterv, comm, ours, [&] {
    return pmpi.Scatterv(in, in_counts, in_at, in_type, out, out_count, out_type, root, comm);
  });
}

int take_Alltoall(ROPEWALK_IN, ROPEWALK_OUT, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const auto ranks = static_cast<size_t>(channel.size());
    if (!are_valid(out_count, out_type)) return Left::arguments;
    if (!is_in_place(in) && !are_valid(in_count, in_type)) return Left::arguments;
    Bytes to(out, out_type, ranks * static_cast<size_t>(out_count));
    Bytes from = is_in_place(in) ? Bytes(out, out_type, ranks * static_cast<size_t>(out_count))
                                 : Bytes(in, in_type, ranks * static_cast<size_t>(in_count));
    if (from.size() != to.size()) return Left::arguments;
    const std::byte* const data = is_in_place(in) ? from.read_copy() : from.read();
    channel.run(moving(Collective::all_to_all, data, to.write(), from.size() / ranks));
    to.finish();
    return Left::none;
  };
  return serve(Kind::Alltoall, comm, ours, [&] {
    return pmpi.Alltoall(in, in_count, in_type, out, out_count, out_type, comm);
  });
}

int take_Alltoallv(ROPEWALK_INS, ROPEWALK_OUTS, MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    const int ranks = channel.size();
    if (!are_valid(out_counts, out_type, ranks) || out_at == nullptr) return Left::arguments;
    const bool in_place = is_in_place(in);
    if (!in_place && (!are_valid(in_counts, in_type, ranks) || in_at == nullptr))
      return Left::arguments;
    Bytes to(out, out_type, out_counts, out_at, ranks);
    Bytes from = in_place ? Bytes(out, out_type, out_counts, out_at, ranks)
                          : Bytes(in, in_type, in_counts, in_at, ranks);
    const std::byte* const data = in_place ? from.read_copy() : from.read();
    std::vector<size_t> received = scaled(out_counts, ranks, bytes_of(out_type));
    Call call = moving_parts(Collective::all_to_all, data, to.write(),
                             in_place ? received : scaled(in_counts, ranks, bytes_of(in_type)));
    call.recv_counts = std::move(received);
    channel.run(call);
    to.finish();
    return Left::none;
  };
  return serve(Kind::Alltoallv, comm, ours, [&] {
    return pmpi.Alltoallv(in, in_counts, in_at, in_type, out, out_counts, out_at, out_type, comm);
  });
}

int take_Barrier(MPI_Comm comm) {
  const auto ours = [&](Channel& channel) {
    uint8_t byte = 0;
    Call call = Call::all_reduce(std::span(&byte, 1), kMax);
    call.collective = Collective::barrier;
    channel.run(call);
    return Left::none;
  };
  return serve(Kind::Barrier, comm, ours, [&] { return pmpi.Barrier(comm); });
}

}  // namespace

void take_collectives(Table& table) {
#define ROPEWALK_TAKE(name, parameters, arguments) table.name = take_##name;
  ROPEWALK_MPI_COLLECTIVES(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE
}

}  // namespace ropewalk::mpi
