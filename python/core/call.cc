#include "call.h"

#include <fmt/format.h>

#include "invalid.h"

namespace ropewalk::python {
namespace {

template <class T>
T named(const CallArguments& arguments, const char* argument, const std::string& word,
        std::optional<T> found) {
  if (!found)
    reject(arguments.collective, fmt::format("{} is \"{}\"", argument, word),
           fmt::format("use one that ropewalk.{} lists", argument));
  return *found;
}

bool is_root_only(Collective collective, bool input) {
  if (input) return collective == Collective::scatter;
  return collective == Collective::reduce || collective == Collective::gather;
}

bool needs_in(const Call& call, int rank) {
  return call.collective != Collective::recv &&
         (!is_root_only(call.collective, true) || rank == call.root);
}

bool needs_out(const Call& call, int rank) {
  return call.collective != Collective::send &&
         (!is_root_only(call.collective, false) || rank == call.root);
}

bool is_in_place(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::broadcast ||
         collective == Collective::recv;
}

/// The part of each rank, where no counts were given: from the side that is one part.
size_t count_of(const Call& call, const Array* in, const Array* out, int ranks) {
  switch (call.collective) {
    case Collective::reduce_scatter:
    case Collective::scatter:
    case Collective::recv:
      return out->count;
    case Collective::all_to_all:
      return in->count / static_cast<size_t>(ranks);
    default:
      return in->count;
  }
}

void require_count(const CallArguments& arguments, const Session& session, const char* name,
                   const Array* array, size_t wanted) {
  if (!array || array->count == wanted) return;
  reject(arguments.collective,
         fmt::format("{} has {} elements where {} are needed ({} ranks)", name, array->count,
                     wanted, session.size),
         !arguments.counts.empty() ? "make it fit the counts" : "make it fit the other array");
}

void require_present(const CallArguments& arguments, const char* name, bool needed, bool given) {
  if (needed && !given)
    reject(arguments.collective, fmt::format("{} is None, and this rank needs one", name),
           "give an array");
}

void check_sizes(const CallArguments& arguments, const Session& session, const Call& call,
                 const Array* in, const Array* out) {
  if (in && out && in->type != out->type)
    reject(arguments.collective,
           fmt::format("out has dtype {}, but x has {}", name_of(out->type), name_of(in->type)),
           "give arrays of one dtype");
  if (call.collective == Collective::all_to_all && call.counts.empty() &&
      in->count % static_cast<size_t>(session.size) != 0)
    reject(arguments.collective,
           fmt::format("x has {} elements, which {} ranks cannot share alike", in->count,
                       session.size),
           "give a multiple of the number of ranks, or counts");
  const Extent extents = extent_of(call, session.rank, session.size);
  const bool reads = call.collective != Collective::broadcast || session.rank == call.root;
  if (in != out && reads) require_count(arguments, session, "x", in, extents.in);
  require_count(arguments, session, "out", out, extents.out);
}

Call named_call(const CallArguments& arguments) {
  Call call;
  call.collective =
      named(arguments, "collective", arguments.collective, collective_named(arguments.collective));
  call.op.kind = named(arguments, "op", arguments.op, reduce_kind_named(arguments.op));
  call.op.scale = arguments.scale;
  call.root = arguments.root;
  if (arguments.algorithm)
    call.algorithm =
        named(arguments, "algorithm", *arguments.algorithm, algorithm_named(*arguments.algorithm));
  return call;
}

void take_arrays(const CallArguments& arguments, const Session& session, PreparedCall& prepared) {
  Call& call = prepared.call;
  const bool in_place = is_in_place(call.collective) && arguments.out.is_none();
  const bool has_in = needs_in(call, session.rank);
  const bool has_out = needs_out(call, session.rank);
  require_present(arguments, "x", has_in || in_place, !arguments.x.is_none());
  require_present(arguments, "out", has_out && !in_place, !arguments.out.is_none());

  prepared.arrays.reserve(2);  // pointers into it are taken
  const auto take = [&](const nb::object& object, const char* name, Access access) {
    return &prepared.arrays.emplace_back(view_array(object, arguments.collective, name, access));
  };
  const Array *in = nullptr, *out = nullptr;
  if (in_place) {
    const bool only_sends = call.collective == Collective::broadcast && call.root == session.rank;
    in = out = take(arguments.x, "x", only_sends ? Access::read : Access::write);
  } else {
    if (has_in) in = take(arguments.x, "x", Access::read);
    if (has_out) out = take(arguments.out, "out", Access::write);
  }
  call.type = in ? in->type : out->type;
  if (call.counts.empty()) call.count = count_of(call, in, out, session.size);
  check_sizes(arguments, session, call, in, out);
  if (in) call.in = in->data;
  if (out) call.out = out->data;
}

}  // namespace

PreparedCall prepare_call(const Session& session, const CallArguments& arguments) {
  PreparedCall prepared{named_call(arguments), {}};
  prepared.call.counts = arguments.counts;
  prepared.call.recv_counts = arguments.recv_counts;
  take_arrays(arguments, session, prepared);
  return prepared;
}

}  // namespace ropewalk::python
