// Wrong arguments of each collective that Ropewalk takes from the MPI, in each of its forms: the
// program gets the class of error that MPI names, by the communicator's error handler, and goes on.
// `tests/mpi/run` starts it with Ropewalk in front.
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>

#include "testing.h"

namespace {

constexpr int kCount = 2;  // of a part
constexpr unsigned kTimeLimit_s = 200;

/// What any of the collectives may be given; each takes of it what it has.
struct Args {
  const void* in;
  void* out;
  int in_count, out_count;
  const int *in_counts, *in_at, *out_counts, *out_at;
  MPI_Datatype in_type, out_type;
  MPI_Op op;
  int root;
  MPI_Comm comm;
};

enum class Form { blocking, nonblocking, persistent };
enum class Who { nobody, root, all };

struct Collective {
  const char* name;
  Who sends, receives;  // whose arguments for that count
  bool reduces, has_root, sends_parts, receives_parts;
  std::function<int(Form, const Args&, MPI_Request*)> call;
};

#if MPI_VERSION >= 4
constexpr Form kForms[] = {Form::blocking, Form::nonblocking, Form::persistent};
#define PERSISTENT(Name, ...) \
  if (form == Form::persistent) return MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, request);
#else
constexpr Form kForms[] = {Form::blocking, Form::nonblocking};
#define PERSISTENT(Name, ...)
#endif
#define FORMS(Name, Iname, ...)                                          \
  [](Form form, const Args& a, MPI_Request* request) {                   \
    PERSISTENT(Name, __VA_ARGS__)                                        \
    return form == Form::nonblocking ? MPI_##Iname(__VA_ARGS__, request) \
                                     : MPI_##Name(__VA_ARGS__);          \
  }
#define SENT a.in, a.in_count, a.in_type
#define GOT a.out, a.out_count, a.out_type
#define PARTS_SENT a.in, a.in_counts, a.in_at, a.in_type
#define PARTS_GOT a.out, a.out_counts, a.out_at, a.out_type
#define ADDED a.in, a.out, a.out_count, a.out_type, a.op

const Collective kCollectives[] = {
    {"Allreduce", Who::all, Who::all, true, false, false, false,
     FORMS(Allreduce, Iallreduce, ADDED, a.comm)},
    {"Reduce", Who::all, Who::root, true, true, false, false,
     FORMS(Reduce, Ireduce, ADDED, a.root, a.comm)},
    {"Reduce_scatter", Who::all, Who::all, true, false, false, true,
     FORMS(Reduce_scatter, Ireduce_scatter, a.in, a.out, a.out_counts, a.out_type, a.op, a.comm)},
    {"Reduce_scatter_block", Who::all, Who::all, true, false, false, false,
     FORMS(Reduce_scatter_block, Ireduce_scatter_block, ADDED, a.comm)},
    {"Bcast", Who::nobody, Who::all, false, true, false, false,
     FORMS(Bcast, Ibcast, GOT, a.root, a.comm)},
    {"Allgather", Who::all, Who::all, false, false, false, false,
     FORMS(Allgather, Iallgather, SENT, GOT, a.comm)},
    {"Allgatherv", Who::all, Who::all, false, false, false, true,
     FORMS(Allgatherv, Iallgatherv, SENT, PARTS_GOT, a.comm)},
    {"Gather", Who::all, Who::root, false, true, false, false,
     FORMS(Gather, Igather, SENT, GOT, a.root, a.comm)},
    {"Gatherv", Who::all, Who::root, false, true, false, true,
     FORMS(Gatherv, Igatherv, SENT, PARTS_GOT, a.root, a.comm)},
    {"Scatter", Who::root, Who::all, false, true, false, false,
     FORMS(Scatter, Iscatter, SENT, GOT, a.root, a.comm)},
    {"Scatterv", Who::root, Who::all, false, true, true, false,
     FORMS(Scatterv, Iscatterv, PARTS_SENT, GOT, a.root, a.comm)},
    {"Alltoall", Who::all, Who::all, false, false, false, false,
     FORMS(Alltoall, Ialltoall, SENT, GOT, a.comm)},
    {"Alltoallv", Who::all, Who::all, false, false, true, true,
     FORMS(Alltoallv, Ialltoallv, PARTS_SENT, PARTS_GOT, a.comm)},
};

struct Fault {
  const char* name;
  int error_class;
  bool applies;  // to this collective on this rank
  std::function<void(Args&)> make;
};

int errors_handled = 0;

void count_error(MPI_Comm*, int*, ...) {
  ++errors_handled;
}

int class_of(int status) {
  int error_class = 0;
  MPI_Error_class(status, &error_class);
  return error_class;
}

MPI_Comm make_communicator() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(count_error, &handler);
  MPI_Comm_set_errhandler(comm, handler);
  MPI_Errhandler_free(&handler);
  MPI_Barrier(comm);  // links it, so that nonblocking calls are taken, too
  return comm;
}

/// What the MPI itself makes of an error where a program has a handler of its own: MPICH 5.0.2, by
/// the standard ABI, calls it and returns success.
int class_by_mpi(int error_class) {
  static const bool returns_success = [] {
    MPI_Comm comm = make_communicator();
    const int status = PMPI_Bcast(nullptr, -1, MPI_INT, 0, comm);
    MPI_Comm_free(&comm);
    errors_handled = 0;  // that was no part of the test
    return status == MPI_SUCCESS;
  }();
  return returns_success ? MPI_SUCCESS : error_class;
}

std::vector<Fault> faults_of(const Collective& of, bool is_root, int size, MPI_Datatype raw) {
  static const int negative[] = {kCount, -1, kCount, kCount, kCount, kCount, kCount, kCount};
  const auto counts = [&](Who who) { return who == Who::all || (who == Who::root && is_root); };
  const bool sends = counts(of.sends), receives = counts(of.receives);
  const bool has_types = sends && !of.reduces;
  const bool may_scatter_in_place = of.sends == Who::root && is_root;
  const bool may_send_in_place = of.has_root ? of.receives == Who::root && is_root : true;
  // Open MPI, and who has its ABI, does not look for it.
  bool looks_for_aliases = false;
#if defined(MPICH_NAME) || defined(MPICH)
  looks_for_aliases = is_root && sends && receives;
#endif
  const MPI_Datatype none = MPI_DATATYPE_NULL;
  return {
      {"no type to send", MPI_ERR_TYPE, has_types, [=](Args& a) { a.in_type = none; }},
      {"no type to receive", MPI_ERR_TYPE, receives, [=](Args& a) { a.out_type = none; }},
      {"a raw type to send", MPI_ERR_TYPE, has_types, [=](Args& a) { a.in_type = raw; }},
      {"a raw type to receive", MPI_ERR_TYPE, receives, [=](Args& a) { a.out_type = raw; }},
      {"-1 to send", MPI_ERR_COUNT, has_types,
       [](Args& a) { a.in_count = -1, a.in_counts = negative; }},
      {"-1 to receive", MPI_ERR_COUNT, receives,
       [](Args& a) { a.out_count = -1, a.out_counts = negative; }},
      {"no counts to send", MPI_ERR_ARG, sends && of.sends_parts,
       [](Args& a) { a.in_counts = nullptr; }},
      {"no places to send from", MPI_ERR_ARG, sends && of.sends_parts,
       [](Args& a) { a.in_at = nullptr; }},
      {"no counts to receive", MPI_ERR_ARG, receives && of.receives_parts,
       [](Args& a) { a.out_counts = nullptr; }},
      {"no places to receive at", MPI_ERR_ARG, receives && of.receives_parts && !of.reduces,
       [](Args& a) { a.out_at = nullptr; }},
      {"no operation", MPI_ERR_OP, of.reduces, [](Args& a) { a.op = MPI_OP_NULL; }},
      {"bits of doubles", class_by_mpi(MPI_ERR_OP), of.reduces,
       [](Args& a) { a.op = MPI_BAND, a.out_type = MPI_DOUBLE; }},
      {"root -1", MPI_ERR_ROOT, of.has_root, [](Args& a) { a.root = -1; }},
      {"root beyond the last", MPI_ERR_ROOT, of.has_root, [=](Args& a) { a.root = size; }},
      {"nothing to send from", MPI_ERR_BUFFER, sends, [](Args& a) { a.in = nullptr; }},
      {"nothing to receive at", MPI_ERR_BUFFER, receives, [](Args& a) { a.out = nullptr; }},
      {"sent in place", MPI_ERR_BUFFER, sends && !may_send_in_place,
       [](Args& a) { a.in = MPI_IN_PLACE; }},
      {"received in place", MPI_ERR_BUFFER, receives && !may_scatter_in_place,
       [](Args& a) { a.out = MPI_IN_PLACE; }},
      {"one buffer for both", MPI_ERR_BUFFER, looks_for_aliases, [](Args& a) { a.in = a.out; }},
  };
}

void test_collective(const Collective& collective, MPI_Comm comm, int size) {
  std::vector<int> in(64), out(64), counts(static_cast<size_t>(size), kCount), at;
  for (int r = 0; r < size; ++r) at.push_back(r * kCount);
  MPI_Datatype raw;
  MPI_Type_vector(2, 1, 2, MPI_INT, &raw);
  for (const Form form : kForms)
    for (const Fault& fault : faults_of(collective, world_rank == 0, size, raw)) {
      if (!fault.applies) continue;
      Args args{in.data(),     out.data(), kCount,  kCount,  counts.data(), at.data(),
                counts.data(), at.data(),  MPI_INT, MPI_INT, MPI_SUM,       0,
                comm};
      fault.make(args);
      MPI_Request request = MPI_REQUEST_NULL;
      const int handled_before = errors_handled;
      const int got = class_of(collective.call(form, args, &request));
      require(got == fault.error_class, std::string(collective.name) + ", form " +
                                            std::to_string(static_cast<int>(form)) + ", " +
                                            fault.name + ": class " + std::to_string(got) +
                                            ", not " + std::to_string(fault.error_class));
      require(errors_handled == handled_before + 1, "the communicator's handler was not called");
    }
  MPI_Type_free(&raw);
  int one = 1, sum = 0;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
  require(sum == size, "the communicator does not go on");
}

// ---- Lengths that differ ----

constexpr int kShort = 5, kLong = 10, kGuards = 40;
constexpr int kUntouched = -77;

/// What a rank sends, and has room for, of each part.
struct Lengths {
  int sent, room;
};

struct LengthCase {
  const char* name;
  Lengths of_root, of_others;
};
constexpr LengthCase kTooLong{"all send too much", {kLong, kShort}, {kLong, kShort}};
constexpr LengthCase kRootLonger{"the root has more", {kLong, kLong}, {kShort, kShort}};
constexpr LengthCase kOneTooLong{"one rank sends too much", {kLong, kShort}, {kShort, kShort}};
constexpr LengthCase kTooShort{"all send less", {kShort, kLong}, {kShort, kLong}};

bool is_one_of(const Collective& collective, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string name) { return name == collective.name; });
}

bool gets_parts_of_all(const Collective& collective) {
  return is_one_of(collective,
                   {"Allgather", "Allgatherv", "Gather", "Gatherv", "Alltoall", "Alltoallv"});
}

/// The class of the error that `call` gives, or that its request ends with.
int class_with_request(Form form, const Collective& collective, const Args& args) {
  MPI_Request request = MPI_REQUEST_NULL;
  int status = collective.call(form, args, &request);
  if (form == Form::blocking || status != MPI_SUCCESS) return class_of(status);
  if (form == Form::persistent) status = MPI_Start(&request);
  if (status == MPI_SUCCESS) status = MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (form == Form::persistent) MPI_Request_free(&request);
  return class_of(status);
}

/// On the root of a gather: each part lies where the root has room for it.
bool lies_by_room(const std::vector<int>& out, const LengthCase& of, int size) {
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < of.of_root.room; ++i) {
      const int sent = r == 0 ? of.of_root.sent : of.of_others.sent;
      const int wanted = i < sent ? 100 * r + i : kUntouched;
      if (out[static_cast<size_t>(r * of.of_root.room + i)] != wanted) return false;
    }
  return true;
}

/// Gives the class of this rank's error. No rank waits for ever, none writes behind its room, and
/// all that end with an error end with that of lengths.
int run_with_lengths(const Collective& collective, Form form, const LengthCase& of, int size) {
  const std::string what = std::string(collective.name) + ", form " +
                           std::to_string(static_cast<int>(form)) + ", " + of.name;
  MPI_Comm comm = make_communicator();
  const auto [sent, room] = world_rank == 0 ? of.of_root : of.of_others;
  const auto ranks = static_cast<size_t>(size);
  const std::vector<int> in_counts(ranks, sent), out_counts(ranks, room);
  std::vector<int> in_at, out_at, in(ranks * kLong), out(ranks * kLong + kGuards, kUntouched);
  for (int r = 0; r < size; ++r) in_at.push_back(r * sent), out_at.push_back(r * room);
  for (size_t i = 0; i < in.size(); ++i) in[i] = 100 * world_rank + static_cast<int>(i);
  const Args args{in.data(),
                  out.data(),
                  sent,
                  room,
                  in_counts.data(),
                  in_at.data(),
                  out_counts.data(),
                  out_at.data(),
                  MPI_INT,
                  MPI_INT,
                  MPI_SUM,
                  0,
                  comm};
  const int got = class_with_request(form, collective, args);
  require(got == MPI_SUCCESS || got == MPI_ERR_TRUNCATE, what + ": class " + std::to_string(got));
  const size_t written = static_cast<size_t>(room) * (gets_parts_of_all(collective) ? ranks : 1);
  require(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(written), out.end(),
                      [](int value) { return value == kUntouched; }),
          what + ": memory behind the buffer was written");
  const bool by_room = world_rank == 0 && got == MPI_SUCCESS && of.of_root.room == kLong &&
                       is_one_of(collective, {"Gather", "Gatherv"});
  require(!by_room || lies_by_room(out, of, size), what + ": parts lie elsewhere");
  MPI_Comm_free(&comm);
  return got;
}

int count_of_ranks(bool holds) {
  int mine = holds ? 1 : 0, all = 0;
  PMPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/// Who must learn it: all who receive what is too long, or wait for who does; at least one where
/// some may have ended before.
void test_lengths_of(const Collective& collective, Form form, int size) {
  const auto learn = [&](const LengthCase& of) {
    const int got = run_with_lengths(collective, form, of, size);
    return count_of_ranks(got == MPI_ERR_TRUNCATE);
  };
  const std::string what =
      std::string(collective.name) + ", form " + std::to_string(static_cast<int>(form)) + ", ";
  const bool has_two_lengths = !collective.reduces && collective.sends != Who::nobody;
  const int receivers = collective.receives == Who::all ? size : 1;
  // The root of a blocking one learns how long each part is.
  const bool may_be_shorter = form == Form::blocking && is_one_of(collective, {"Gatherv"});
  require(may_be_shorter ? learn(kRootLonger) == 0 : learn(kRootLonger) > 0,
          what + kRootLonger.name);
  if (!has_two_lengths) return;
  require(learn(kTooLong) >= receivers, what + kTooLong.name);
  require(learn(kOneTooLong) >= receivers, what + kOneTooLong.name);
  if (is_one_of(collective, {"Gather", "Allgather", "Alltoall"}) || may_be_shorter)
    require(learn(kTooShort) == 0, what + kTooShort.name);
}

/// The communicators are done for.
void test_lengths_that_differ(int size) {
  if (size == 1) return;
  // Errors of a wait may be those of other communicators than that of the collective.
  for (MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  for (const Collective& collective : kCollectives)
    for (const Form form : kForms) test_lengths_of(collective, form, size);
}

/// Of one rank alone, which Ropewalk refuses: the others do not wait for it.
void test_overlap_on_one_rank(int size) {
  if (size == 1) return;
  constexpr int kLength = 1 << 18;
  for (const Form form : kForms) {
    MPI_Comm comm = make_communicator();
    std::vector<int> in(kLength), out(kLength + 1);
    const void* const from = world_rank == 0 ? out.data() + 1 : in.data();
    const Args args{from,    out.data(), kLength, kLength, nullptr, nullptr, nullptr,
                    nullptr, MPI_INT,    MPI_INT, MPI_SUM, 0,       comm};
    const int got = class_with_request(form, kCollectives[0], args);
    require(got == (world_rank == 0 ? MPI_ERR_BUFFER : MPI_ERR_TRUNCATE),
            "buffers that overlap on a rank: class " + std::to_string(got));
    MPI_Comm_free(&comm);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm comm = make_communicator();
  for (const Collective& collective : kCollectives) test_collective(collective, comm, size);
  MPI_Comm_free(&comm);
  alarm(kTimeLimit_s);
  test_lengths_that_differ(size);
  test_overlap_on_one_rank(size);
  MPI_Finalize();
  if (world_rank == 0) std::printf("%d wrong calls were refused\n", errors_handled);
}
