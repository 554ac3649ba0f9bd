// A function for each collective of MPI prepares it: it tells what this rank's arguments mean as a
// Call. All forms of the collective use it: blocking and not, with counts of both types.
// Whether a call is taken depends only on what MPI wants to be the same on all ranks; the layout of
// types, and whether a buffer is in place, are each rank's own. What is wrong with the arguments of
// a rank is refused before anything is sent (arguments.h), or by all ranks (prepared.h).
#include "collectives.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "arguments.h"
#include "bytes.h"
#include "channel.h"
#include "prepared.h"
#include "requests.h"
#include "varying.h"

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

/// What this rank sends to itself does not have the length of where that goes.
Left refuse_length(Prepared& prepared) {
  prepared.refuse(Error(ErrorCode::mismatch, "arguments",
                        "what a rank sends to itself has another length than what it receives"));
  return Left::none;
}

/// `to` may be longer.
void copy_own(Prepared& prepared, Bytes from, Bytes to) {
  if (!to.has_room_for(from.size())) return void(refuse_length(prepared));
  to.shorten(from.size());
  prepared.copy(std::move(from), std::move(to));
}

/// Where `bytes` from each of `ranks` are received, `part` elements apart: in MPIs less may come
/// than there is room for. False: more comes.
bool receive_parts(Prepared& prepared, size_t bytes, size_t ranks, void* out, MPI_Datatype type,
                   size_t part) {
  const Bytes room(out, type, part);
  if (!room.has_room_for(bytes)) return false;
  if (room.size() == bytes) {
    prepared.to.emplace(out, type, ranks * part);
    return true;
  }
  const std::vector<size_t> counts(ranks, bytes / bytes_of(type));
  std::vector<size_t> at(ranks);
  for (size_t r = 0; r < ranks; ++r) at[r] = r * part;
  prepared.to.emplace(out, type, counts.data(), at.data(), static_cast<int>(ranks));
  return true;
}

template <class Count>
Left prepare_Allgather(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count),
                       ROPEWALK_OUT(Count), MPI_Comm) {
  const auto ranks = static_cast<size_t>(channel.size());
  require_data(out, out_count, out_type);
  if (!is_in_place(in)) require_data(in, in_count, in_type);
  const auto part = static_cast<size_t>(out_count);
  const size_t own_at = part * static_cast<size_t>(channel.rank());
  refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, in,
               place_of(out, out_type, own_at));
  Bytes& from = is_in_place(in) ? prepared.from.emplace(out, out_type, part, own_at)
                                : prepared.from.emplace(in, in_type, static_cast<size_t>(in_count));
  if (!receive_parts(prepared, from.size(), ranks, out, out_type, part))
    return refuse_length(prepared);
  prepared.call = moving(Collective::all_gather, from.read(), prepared.to->write(), from.size());
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
  if (from.size() != bytes[static_cast<size_t>(channel.rank())]) return refuse_length(prepared);
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
  const auto part = is_root ? static_cast<size_t>(out_count) : 0;
  const size_t own_at = part * static_cast<size_t>(root);
  if (is_root)
    refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, in,
                 place_of(out, out_type, own_at));
  Bytes& from = is_in_place(in) ? prepared.from.emplace(out, out_type, part, own_at)
                                : prepared.from.emplace(in, in_type, static_cast<size_t>(in_count));
  const auto ranks = static_cast<size_t>(channel.size());
  if (is_root && !receive_parts(prepared, from.size(), ranks, out, out_type, part))
    return refuse_length(prepared);
  prepared.call = moving(Collective::gather, from.read(), is_root ? prepared.to->write() : nullptr,
                         from.size(), root);
  return Left::none;
}

/// Without waiting for others: each rank knows the length of its own part, which the root's must
/// equal.
void gather_by_messages(const Channel& channel, Prepared& prepared, std::optional<Bytes> own,
                        const PartOf& part_of, int root) {
  prepared.be_messages();
  if (channel.rank() != root) return prepared.send(root, std::move(*own));
  for (int r = 0; r < channel.size(); ++r)
    if (r != root) prepared.receive(r, part_of(r));
  if (own) copy_own(prepared, std::move(*own), part_of(root));
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
  std::optional<Bytes> own;
  if (!is_in_place(in)) own.emplace(in, in_type, static_cast<size_t>(in_count));
  const auto part = [&](int r) { return part_of(r, out, out_counts, out_at, out_type); };
  if (prepared.waits())
    gather_varying(channel, std::move(own), std::cref(part), root);
  else
    gather_by_messages(channel, prepared, std::move(own), part, root);
  prepared.has_ended = prepared.waits();
  return Left::none;
}

template <class Count>
Left prepare_Scatter(Channel& channel, Prepared& prepared, ROPEWALK_IN(Count), ROPEWALK_OUT(Count),
                     int root, MPI_Comm) {
  require_rank(root, channel);
  const bool is_root = channel.rank() == root;
  if (is_root) require_data(in, in_count, in_type);
  if (!is_root || !is_in_place(out)) require_data(out, out_count, out_type);
  const auto part = is_root ? static_cast<size_t>(in_count) : 0;
  if (is_root)
    refuse_alias(in_type == out_type && in_count == out_count && in_count > 0, out,
                 place_of(in, in_type, part * static_cast<size_t>(root)));
  if (!is_in_place(out)) prepared.to.emplace(out, out_type, static_cast<size_t>(out_count));
  if (!is_root) {
    void* const to = prepared.to->write();
    prepared.call = moving(Collective::scatter, nullptr, to, prepared.to->size(), root);
    return Left::none;
  }
  const auto ranks = static_cast<size_t>(channel.size());
  Bytes& from = prepared.from.emplace(in, in_type, part * ranks);
  const size_t bytes = from.size() / ranks;
  if (prepared.to && !prepared.to->has_room_for(bytes)) return refuse_length(prepared);
  if (prepared.to) prepared.to->shorten(bytes);
  const std::byte* const data = from.read();
  // In place it stays where it is in what is sent.
  void* const to = prepared.to ? prepared.to->write()
                               : const_cast<std::byte*>(data) + bytes * static_cast<size_t>(root);
  prepared.call = moving(Collective::scatter, data, to, bytes, root);
  return Left::none;
}

void scatter_by_messages(const Channel& channel, Prepared& prepared, const PartOf& part_of,
                         std::optional<Bytes> own, int root) {
  prepared.be_messages();
  if (channel.rank() != root) return prepared.receive(root, std::move(*own));
  for (int r = 0; r < channel.size(); ++r)
    if (r != root) prepared.send(r, part_of(r));
  if (own) copy_own(prepared, part_of(root), std::move(*own));
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
  std::optional<Bytes> own;
  if (!is_in_place(out)) own.emplace(out, out_type, static_cast<size_t>(out_count));
  const auto part = [&](int r) { return part_of(r, in, in_counts, in_at, in_type); };
  if (prepared.waits())
    scatter_varying(channel, std::cref(part), std::move(own), root);
  else
    scatter_by_messages(channel, prepared, part, std::move(own), root);
  prepared.has_ended = prepared.waits();
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
  Bytes& from = is_in_place(in) ? prepared.from.emplace(out, out_type, ranks * part)
                                : prepared.from.emplace(in, in_type, ranks * part);
  const size_t bytes = from.size() / ranks;
  if (!receive_parts(prepared, bytes, ranks, out, out_type, static_cast<size_t>(out_count)))
    return refuse_length(prepared);
  const std::byte* const data = is_in_place(in) ? from.read_copy() : from.read();
  prepared.call = moving(Collective::all_to_all, data, prepared.to->write(), bytes);
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
  std::vector<size_t> received = scaled(out_counts, ranks, bytes_of(out_type));
  std::vector<size_t> sent = in_place ? received : scaled(in_counts, ranks, bytes_of(in_type));
  const auto own = static_cast<size_t>(channel.rank());
  if (sent[own] != received[own]) return refuse_length(prepared);
  const std::byte* const data = in_place ? from.read_copy() : from.read();
  prepared.call = moving_parts(Collective::all_to_all, data, to.write(), std::move(sent));
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

int fail(MPI_Comm comm, const char* what, int error_class) {
  int ranks = 0;
  pmpi.Comm_size(comm, &ranks);
  print_failure(ranks, what);
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

/// Has `ours` serve the call where it can be taken, else `theirs`, the MPI's own. See Left.
template <class Ours, class Theirs>
int serve(Kind kind, MPI_Comm comm, bool blocks, const Ours& ours, const Theirs& theirs) {
  Server server;
  try {
    server = server_of(comm, blocks);
    if (server.left == Left::none) {
      server.channel->note_begun();
      server.left = ours(*server.channel);
      server.channel->note_ended(server.left);
    }
  } catch (const Error& error) {
    if (server.channel != nullptr && error.code() == ErrorCode::invalid_argument)
      server.channel->note_ended();  // the communicator goes on
    return fail(comm, error.what(), error_class_of(error));
  } catch (const Refusal& refusal) {
    if (server.channel != nullptr) server.channel->note_ended();
    return fail(comm, refusal.what, refusal.error_class);
  } catch (const std::exception& error) {  // such as std::bad_alloc
    if (server.channel != nullptr) server.channel->abort(error.what());
    return fail(comm, error.what(), MPI_ERR_OTHER);
  }
  count_call(kind, server.left);
  return server.left == Left::none ? MPI_SUCCESS : theirs();
}

/// What Ropewalk itself refuses the others learn, too.
void run(Channel& channel, Prepared& prepared) try {
  try {
    channel.run(std::move(prepared.call));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::invalid_argument) throw;
    prepared.refuse(error);
    channel.run(std::move(prepared.call));
  }
  prepared.finish();
} catch (const Error& error) {
  throw Error(prepared.told_of(error));
}

#define ROPEWALK_AFTER_PREPARED(...) (channel, prepared, __VA_ARGS__)

#define ROPEWALK_TAKE(name, parameters, arguments, collective, its_arguments)        \
  int take_##name parameters {                                                       \
    const auto ours = [&](Channel& channel) {                                        \
      Prepared prepared(true);                                                       \
      const Left left = prepare_##collective ROPEWALK_AFTER_PREPARED its_arguments;  \
      if (left == Left::none && !prepared.has_ended) run(channel, prepared);         \
      return left;                                                                   \
    };                                                                               \
    return serve(Kind::name, comm, true, ours, [&] { return pmpi.name arguments; }); \
  }
ROPEWALK_MPI_BLOCKING(ROPEWALK_TAKE)
ROPEWALK_MPI_4_BLOCKING(ROPEWALK_TAKE)
#undef ROPEWALK_TAKE

/// `hand_over` makes it a request's.
#define ROPEWALK_TAKE_AS_REQUEST(hand_over, blocks, name, parameters, arguments, collective, \
                                 its_arguments)                                              \
  int take_##name parameters {                                                               \
    const auto ours = [&](Channel& channel) {                                                \
      require(request != nullptr, "no place for the request", MPI_ERR_ARG);                  \
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
