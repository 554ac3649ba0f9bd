// A function for each collective of MPI prepares it: it tells what this rank's arguments mean as a
// Call. All forms of the collective use it: blocking and not, with counts of both types.
// Whether a call is taken depends only on what MPI wants to be the same on all ranks; the layout of
// types, and whether a buffer is in place, are each rank's own. What is wrong with the arguments of
// a rank is refused before anything is sent (arguments.h).
#include "collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "arguments.h"
#include "bytes.h"
#include "channel.h"
#include "prepared.h"
#include "requests.h"

namespace ropewalk::mpi {
namespace {

// ---- Reductions ----

struct Reduction {
  const Type* type = nullptr;
  ReduceOp op;
  Left left = Left::none;
};

Reduction reduction(MPI_Op op, MPI_Datatype handle) {
  require(op != MPI_OP_NULL, "MPI_OP_NULL", MPI_ERR_OP);
  if (is_user_op(op)) return {nullptr, {}, Left::user_op};
  const Type* const type = find_type(handle);
  if (type == nullptr) require_type(handle);  // MPICH 5 ends the process
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

template <class Count>
Left prepare_Allreduce(Channel&, Prepared& prepared, const void* in, void* out, Count count,
                       MPI_Datatype type, MPI_Op op, MPI_Comm) {
  const Reduction of = reduction(op, type);
  if (of.left != Left::none) return of.left;
  require_data(out, count, type);
  if (!is_in_place(in)) require_data(in, count, type);
  refuse_alias(count > 0, in, out);
  prepared.call = reducing(Collective::all_reduce, of, is_in_place(in) ? out : in, out,
                           static_cast<size_t>(count));
  return Left::none;
}

template <class Count>
Left prepare_Reduce(Channel& channel, Prepared& prepared, const void* in, void* out, Count count,
                    MPI_Datatype type, MPI_Op op, int root, MPI_Comm) {
  const Reduction of = reduction(op, type);
  if (of.left != Left::none) return of.left;
  require_rank(root, channel);
  if (channel.rank() == root) require_data(out, count, type);
  if (channel.rank() != root || !is_in_place(in)) require_data(in, count, type);
  refuse_alias(channel.rank() == root && count > 0, in, out);
  prepared.call =
      reducing(Collective::reduce, of, is_in_place(in) ? out : in, out, static_cast<size_t>(count));
  prepared.call.root = root;
  return Left::none;
}

/// MPI gives the result in place at the buffer's begin, not in this rank's part.
void put_result_first(Prepared& prepared, const void* in, void* out, size_t own_bytes) {
  if (!is_in_place(in)) return;
  prepared.result.reset(new std::byte[own_bytes + 1]);
  prepared.result_to = out;
  prepared.result_bytes = own_bytes;
  prepared.call.in = out;
  prepared.call.out = prepared.result.get();
}

template <class Count>
Left prepare_Reduce_scatter(Channel& channel, Prepared& prepared, const void* in, void* out,
                            const Count* counts, MPI_Datatype type, MPI_Op op, MPI_Comm) {
  const Reduction of = reduction(op, type);
  if (of.left != Left::none) return of.left;
  require_parts(is_in_place(in) ? out : in, counts, counts, type, channel.size());
  require_data(out, counts[channel.rank()], type);
  prepared.call = reducing(Collective::reduce_scatter, of, in, out, 0);
  prepared.call.counts = scaled(counts, channel.size(), of.type->elements);
  refuse_alias(sum(prepared.call.counts, prepared.call.counts.size()) > 0, in, out);
  const auto own = static_cast<size_t>(counts[channel.rank()]);
  put_result_first(prepared, in, out, own * of.type->bytes());
  return Left::none;
}

template <class Count>
Left prepare_Reduce_scatter_block(Channel&, Prepared& prepared, const void* in, void* out,
                                  Count count, MPI_Datatype type, MPI_Op op, MPI_Comm) {
  const Reduction of = reduction(op, type);
  if (of.left != Left::none) return of.left;
  require_data(out, count, type);
  if (!is_in_place(in)) require_data(in, count, type);
  refuse_alias(count > 0, in, out);
  const auto own = static_cast<size_t>(count);
  prepared.call = reducing(Collective::reduce_scatter, of, in, out, own);
  put_result_first(prepared, in, out, own * of.type->bytes());
  return Left::none;
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

template <class Count>
Left prepare_Bcast(Channel& channel, Prepared& prepared, void* data, Count count, MPI_Datatype type,
                   int root, MPI_Comm) {
  require_rank(root, channel);
  require_data(data, count, type);
  const bool is_root = channel.rank() == root;
  Bytes& bytes =
      (is_root ? prepared.from : prepared.to).emplace(data, type, static_cast<size_t>(count));
  void* const at = is_root ? const_cast<std::byte*>(bytes.read()) : bytes.write();
  prepared.call = moving(Collective::broadcast, at, at, bytes.size(), root);
  return Left::none;
}

template <class Count>
Left prepare_Allgather(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count),
                       ROPEWALK_OUT(Count), MPI_Comm) {
  const auto ranks = static_cast<size_t>(channel.size());
  require_data(out, out_count, out_type);
  if (!is_in_place(in)) require_data(in, in_count, in_type);
  refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, in,
               place_of(out, out_type, channel.rank() * out_count));
  const auto part = static_cast<size_t>(out_count);
  Bytes& to = prepared.to.emplace(out, out_type, ranks * part);
  Bytes& from = is_in_place(in) ? prepared.from.emplace(out, out_type, part,
                                                        part * static_cast<size_t>(channel.rank()))
                                : prepared.from.emplace(in, in_type, static_cast<size_t>(in_count));
  if (from.size() * ranks != to.size()) return Left::arguments;
  prepared.call = moving(Collective::all_gather, from.read(), to.write(), from.size());
  return Left::none;
}

/// Of parts for each rank that of one.
template <class Count, class At>
Bytes part_of(int rank, const void* data, const Count* counts, const At* at, MPI_Datatype type) {
  return Bytes(data, type, counts + rank, at + rank, 1);
}

template <class Count, class At>
Left prepare_Allgatherv(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count),
                        ROPEWALK_OUTS(Count, At), MPI_Comm) {
  require_parts(out, out_counts, out_at, out_type, channel.size());
  if (!is_in_place(in)) require_data(in, in_count, in_type);
  refuse_alias(in_type == out_type && in_count > 0 && out_counts[channel.rank()] > 0, in,
               place_of(out, out_type, out_at[channel.rank()]));
  Bytes& to = prepared.to.emplace(out, out_type, out_counts, out_at, channel.size());
  Bytes& from =
      is_in_place(in)
          ? prepared.from.emplace(part_of(channel.rank(), out, out_counts, out_at, out_type))
          : prepared.from.emplace(in, in_type, static_cast<size_t>(in_count));
  std::vector<size_t> bytes = scaled(out_counts, channel.size(), bytes_of(out_type));
  if (from.size() != bytes[static_cast<size_t>(channel.rank())]) return Left::arguments;
  prepared.call = moving_parts(Collective::all_gather, from.read(), to.write(), std::move(bytes));
  return Left::none;
}

template <class Count>
Left prepare_Gather(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count), ROPEWALK_OUT(Count),
                    int root, MPI_Comm) {
  require_rank(root, channel);
  const bool is_root = channel.rank() == root;
  if (is_root) require_data(out, out_count, out_type);
  if (!is_root || !is_in_place(in)) require_data(in, in_count, in_type);
  if (is_root)
    refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, in,
                 place_of(out, out_type, root * out_count));
  const auto part = is_root ? static_cast<size_t>(out_count) : 0;
  const auto own = static_cast<size_t>(channel.rank());
  Bytes& from = is_in_place(in) ? prepared.from.emplace(out, out_type, part, part * own)
                                : prepared.from.emplace(in, in_type, static_cast<size_t>(in_count));
  void* at = nullptr;
  if (is_root)
    at = prepared.to.emplace(out, out_type, part * static_cast<size_t>(channel.size())).write();
  prepared.call = moving(Collective::gather, from.read(), at, from.size(), root);
  return Left::none;
}

/// The bytes of each rank's part, of which only the root knows: `counts` matter there alone.
template <class Count>
std::vector<size_t> parts_of_root(Channel& channel, const Count* counts, MPI_Datatype type,
                                  int root) {
  std::vector<size_t> bytes(static_cast<size_t>(channel.size()));
  if (channel.rank() == root) bytes = scaled(counts, channel.size(), bytes_of(type));
  channel.run(moving(Collective::broadcast, bytes.data(), bytes.data(),
                     bytes.size() * sizeof(size_t), root));
  return bytes;
}

/// Without that: each rank knows the length of its own part.
template <class Count, class At>
void gather_by_messages(const Channel& channel, Prepared& prepared, Bytes own,
                        ROPEWALK_OUTS(Count, At), int root) {
  prepared.be_messages();
  if (channel.rank() != root) return prepared.send(root, std::move(own));
  for (int r = 0; r < channel.size(); ++r) {
    Bytes part = part_of(r, out, out_counts, out_at, out_type);
    if (r == root)
      prepared.copy(std::move(own), std::move(part));
    else
      prepared.receive(r, std::move(part));
  }
}

template <class Count, class At>
Left prepare_Gatherv(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count),
                     ROPEWALK_OUTS(Count, At), int root, MPI_Comm) {
  require_rank(root, channel);
  const bool is_root = channel.rank() == root;
  if (is_root) require_parts(out, out_counts, out_at, out_type, channel.size());
  if (!is_root || !is_in_place(in)) require_data(in, in_count, in_type);
  if (is_root)
    refuse_alias(in_type == out_type && in_count > 0 && out_counts[root] > 0, in,
                 place_of(out, out_type, out_at[root]));
  Bytes own = is_in_place(in) ? part_of(channel.rank(), out, out_counts, out_at, out_type)
                              : Bytes(in, in_type, static_cast<size_t>(in_count));
  if (!prepared.waits()) {
    gather_by_messages(channel, prepared, std::move(own), out, out_counts, out_at, out_type, root);
    return Left::none;
  }
  Bytes& from = prepared.from.emplace(std::move(own));
  std::vector<size_t> bytes = parts_of_root(channel, out_counts, out_type, root);
  void* at = nullptr;
  if (is_root) at = prepared.to.emplace(out, out_type, out_counts, out_at, channel.size()).write();
  prepared.call = moving_parts(Collective::gather, from.read(), at, std::move(bytes), root);
  return Left::none;
}

/// Where this rank's part is received. The root's stays where it is, in place: `own_at` in what is
/// sent.
template <class Count>
void receive_part(Prepared& prepared, size_t own_at, ROPEWALK_OUT(Count)) {
  if (is_in_place(out))
    prepared.call.out =
        const_cast<std::byte*>(static_cast<const std::byte*>(prepared.call.in)) + own_at;
  else
    prepared.call.out = prepared.to.emplace(out, out_type, static_cast<size_t>(out_count)).write();
}

template <class Count>
Left prepare_Scatter(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count), ROPEWALK_OUT(Count),
                     int root, MPI_Comm) {
  require_rank(root, channel);
  const bool is_root = channel.rank() == root;
  if (is_root) require_data(in, in_count, in_type);
  if (!is_root || !is_in_place(out)) require_data(out, out_count, out_type);
  if (is_root)
    refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, out,
                 place_of(in, in_type, root * in_count));
  const auto ranks = static_cast<size_t>(channel.size());
  size_t bytes = 0;
  const std::byte* data = nullptr;
  if (is_root) {
    Bytes& from = prepared.from.emplace(in, in_type, static_cast<size_t>(in_count) * ranks);
    bytes = from.size() / ranks;
    data = from.read();
  } else {
    bytes = static_cast<size_t>(out_count) * bytes_of(out_type);
  }
  prepared.call = moving(Collective::scatter, data, nullptr, bytes, root);
  receive_part(prepared, bytes * static_cast<size_t>(root), out, out_count, out_type);
  return Left::none;
}

template <class Count, class At>
void scatter_by_messages(const Channel& channel, Prepared& prepared, ROPEWALK_INS(Count, At),
                         ROPEWALK_OUT(Count), int root) {
  prepared.be_messages();
  const auto own = [&] { return Bytes(out, out_type, static_cast<size_t>(out_count)); };
  if (channel.rank() != root) return prepared.receive(root, own());
  for (int r = 0; r < channel.size(); ++r) {
    Bytes part = part_of(r, in, in_counts, in_at, in_type);
    if (r != root)
      prepared.send(r, std::move(part));
    else if (!is_in_place(out))
      prepared.copy(std::move(part), own());
  }
}

template <class Count, class At>
Left prepare_Scatterv(Channel& channel, Prepared& prepared, ROPEWALK_INS(Count, At),
                      ROPEWALK_OUT(Count), int root, MPI_Comm) {
  require_rank(root, channel);
  const bool is_root = channel.rank() == root;
  if (is_root) require_parts(in, in_counts, in_at, in_type, channel.size());
  if (!is_root || !is_in_place(out)) require_data(out, out_count, out_type);
  if (is_root)
    refuse_alias(in_type == out_type && out_count > 0 && in_counts[root] > 0, out,
                 place_of(in, in_type, in_at[root]));
  if (!prepared.waits()) {
    scatter_by_messages(channel, prepared, in, in_counts, in_at, in_type, out, out_count, out_type,
                        root);
    return Left::none;
  }
  std::vector<size_t> bytes = parts_of_root(channel, in_counts, in_type, root);
  const size_t own_at = sum(bytes, static_cast<size_t>(channel.rank()));
  const std::byte* data = nullptr;
  if (is_root) data = prepared.from.emplace(in, in_type, in_counts, in_at, channel.size()).read();
  prepared.call = moving_parts(Collective::scatter, data, nullptr, std::move(bytes), root);
  receive_part(prepared, own_at, out, out_count, out_type);
  return Left::none;
}

template <class Count>
Left prepare_Alltoall(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count), ROPEWALK_OUT(Count),
                      MPI_Comm) {
  const auto ranks = static_cast<size_t>(channel.size());
  require_data(out, out_count, out_type);
  if (!is_in_place(in)) require_data(in, in_count, in_type);
  refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, in, out);
  const auto part = static_cast<size_t>(is_in_place(in) ? out_count : in_count);
  Bytes& to = prepared.to.emplace(out, out_type, ranks * static_cast<size_t>(out_count));
  Bytes& from = is_in_place(in) ? prepared.from.emplace(out, out_type, ranks * part)
                                : prepared.from.emplace(in, in_type, ranks * part);
  if (from.size() != to.size()) return Left::arguments;
  const std::byte* const data = is_in_place(in) ? from.read_copy() : from.read();
  prepared.call = moving(Collective::all_to_all, data, to.write(), from.size() / ranks);
  return Left::none;
}

template <class Count, class At>
Left prepare_Alltoallv(Channel& channel, Prepared& prepared, ROPEWALK_INS(Count, At),
                       ROPEWALK_OUTS(Count, At), MPI_Comm) {
  const int ranks = channel.size();
  const bool in_place = is_in_place(in);
  require_parts(out, out_counts, out_at, out_type, ranks);
  if (!in_place) require_parts(in, in_counts, in_at, in_type, ranks);
  refuse_alias(in_type == out_type && in_counts == out_counts, in, out);
  Bytes& to = prepared.to.emplace(out, out_type, out_counts, out_at, ranks);
  Bytes& from = in_place ? prepared.from.emplace(out, out_type, out_counts, out_at, ranks)
                         : prepared.from.emplace(in, in_type, in_counts, in_at, ranks);
  const std::byte* const data = in_place ? from.read_copy() : from.read();
  std::vector<size_t> received = scaled(out_counts, ranks, bytes_of(out_type));
  prepared.call = moving_parts(Collective::all_to_all, data, to.write(),
                               in_place ? received : scaled(in_counts, ranks, bytes_of(in_type)));
  prepared.call.recv_counts = std::move(received);
  return Left::none;
}

Left prepare_Barrier(Channel&, Prepared& prepared, MPI_Comm) {
  static uint8_t nothing = 0;
  prepared.call = Call::all_reduce(std::span(&nothing, 1), kMax);
  prepared.call.collective = Collective::barrier;
  return Left::none;
}

// ---- Each form of each ----

int fail(MPI_Comm comm, const Channel& channel, const char* what, int error_class) {
  print_failure(channel.size(), what);
  pmpi.Comm_call_errhandler(comm, error_class);
  return error_class;
}

/// Who serves a call on `comm`, or why it is left to the MPI.
struct Server {
  Channel* channel = nullptr;
  Left left = Left::none;
};

/// A nonblocking call waits for nobody, so it makes no channel.
Server server_of(MPI_Comm comm, bool blocks) {
  if (session() == nullptr) return {nullptr, Left::outside};
  Channel* const channel = blocks ? find_or_make_channel(comm) : find_channel(comm);
  if (channel == nullptr) return {nullptr, blocks ? Left::arguments : Left::not_linked};
  return {channel, channel->left()};
}

/// Has `ours` serve the call where it can be taken, else `theirs`, the MPI's own. `ours` gives why
/// it has done nothing, or `none`.
template <class Ours, class Theirs>
int serve(Kind kind, MPI_Comm comm, bool blocks, const Ours& ours, const Theirs& theirs) {
  auto [channel, left] = server_of(comm, blocks);
  if (left == Left::none) try {
      left = ours(*channel);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument)
        return fail(comm, *channel, error.what(), error_class_of(error));
      left = Left::arguments;  // nothing has been sent
    } catch (const Refusal& refusal) {
      return fail(comm, *channel, refusal.what, refusal.error_class);
    } catch (const std::bad_alloc&) {
      return fail(comm, *channel, "there is no memory left", MPI_ERR_OTHER);
    }
  count_call(kind, left);
  return left == Left::none ? MPI_SUCCESS : theirs();
}

#define ROPEWALK_AFTER_PREPARED(...) (channel, prepared, __VA_ARGS__)

#define ROPEWALK_TAKE(name, parameters, arguments, collective, its_arguments)        \
  int take_##name parameters {                                                       \
    const auto ours = [&](Channel& channel) {                                        \
      Prepared prepared(true);                                                       \
      const Left left = prepare_##collective ROPEWALK_AFTER_PREPARED its_arguments;  \
      if (left != Left::none) return left;                                           \
      channel.run(std::move(prepared.call));                                         \
      prepared.finish();                                                             \
      return left;                                                                   \
    };                                                                               \
    return serve(Kind::name, comm, true, ours, [&] { return pmpi.name arguments; }); \
  }
ROPEWALK_MPI_BLOCKING(ROPEWALK_TAKE)
ROPEWALK_MPI_4_BLOCKING(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE

constexpr Left kWrong = Left::arguments;

/// `hand_over` makes it a request's.
#define ROPEWALK_TAKE_AS_REQUEST(hand_over, blocks, name, parameters, arguments, collective, \
                                 its_arguments)                                              \
  int take_##name parameters {                                                               \
    const auto ours = [&](Channel& channel) {                                                \
      if (request == nullptr) return kWrong;                                                 \
      auto owned = std::make_unique<Prepared>(false);                                        \
      Prepared& prepared = *owned;                                                           \
      const Left left = prepare_##collective ROPEWALK_AFTER_PREPARED its_arguments;          \
      if (left == Left::none) hand_over(channel, std::move(owned), request);                 \
      return left;                                                                           \
    };                                                                                       \
    return serve(Kind::name, comm, blocks, ours, [&] { return pmpi.name arguments; });       \
  }

#define ROPEWALK_TAKE(...) ROPEWALK_TAKE_AS_REQUEST(start_request, false, __VA_ARGS__)
ROPEWALK_MPI_NONBLOCKING(ROPEWALK_TAKE)
ROPEWALK_MPI_4_NONBLOCKING(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE

// The memory that the arguments name is the request's until it is freed.
#define ROPEWALK_TAKE(...) ROPEWALK_TAKE_AS_REQUEST(make_persistent_request, true, __VA_ARGS__)
ROPEWALK_MPI_PERSISTENT(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE

}  // namespace

void take_collectives(Table& table) {
#define ROPEWALK_TAKE(name, parameters, arguments, ...) table.name = take_##name;
  ROPEWALK_MPI_COLLECTIVES(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE
}

}  // namespace ropewalk::mpi
