// What C holds: a handle is a number that stands for an object here, so that one that is NULL, was
// freed or is of another kind is found out without looking at what it points to.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "c/boundary.h"
#include "ropewalk/communicator.h"
#include "ropewalk/rendezvous.h"

namespace ropewalk::c {

/// Of a type of handle: `Object`, what it stands for, and `kName`.
template <class Handle>
struct Target;
#define ROPEWALK_C_HANDLE(handle, object)         \
  template <>                                     \
  struct Target<handle> {                         \
    using Object = object;                        \
    static constexpr const char* kName = #handle; \
  };

struct HeldCommunicator {
  explicit HeldCommunicator(std::unique_ptr<Communicator> joined)
      : comm(std::move(joined)), transport(comm->transport()) {}

  std::shared_ptr<Communicator> comm;  // also held by policies that need it
  std::string transport;
};
ROPEWALK_C_HANDLE(rw_comm, HeldCommunicator)
ROPEWALK_C_HANDLE(rw_work, Work)
ROPEWALK_C_HANDLE(rw_plan, Plan)
ROPEWALK_C_HANDLE(rw_rendezvous, Rendezvous)
ROPEWALK_C_HANDLE(rw_stop, std::stop_source)

/// Of all threads. `key`: a new number where it is 0. Returns it.
uintptr_t keep(uintptr_t key, std::shared_ptr<void> object, const char* kind);
/// Throws Error(invalid_argument) where there is no such object, or its process is another one.
std::shared_ptr<void> look_up(uintptr_t key, const char* kind);
/// Likewise, and forgets it. In a forked child it is the parent's, and null.
std::shared_ptr<void> take_out(uintptr_t key, const char* kind);

template <class Handle>
auto look_up(Handle handle) {
  return std::static_pointer_cast<typename Target<Handle>::Object>(
      look_up(reinterpret_cast<uintptr_t>(handle), Target<Handle>::kName));
}
inline std::shared_ptr<Communicator> communicator_of(rw_comm comm) {
  return look_up(comm)->comm;
}

/// Where a function leaves the handle of what it makes: NULL until then.
template <class Handle>
class NewHandle {
 public:
  explicit NewHandle(Handle* out) : out_(required(out, Target<Handle>::kName)) { out_ = nullptr; }
  template <class... Arguments>
  void make(Arguments&&... arguments) {
    using Object = typename Target<Handle>::Object;
    auto object = std::make_shared<Object>(std::forward<Arguments>(arguments)...);
    out_ = reinterpret_cast<Handle>(keep(0, std::move(object), Target<Handle>::kName));
  }

 private:
  Handle& out_;
};

/// Frees what `handle` stands for, after `end(object)`. NULL: nothing.
template <class Handle, class End>
rw_status release(const char* operation, Handle handle, const End& end) {
  return guarded(operation, [&] {
    if (handle == nullptr) return;
    const auto object = std::static_pointer_cast<typename Target<Handle>::Object>(
        take_out(reinterpret_cast<uintptr_t>(handle), Target<Handle>::kName));
    if (object) end(*object);
  });
}
template <class Handle>
rw_status release(const char* operation, Handle handle) {
  return release(operation, handle, [](auto&) {});
}

}  // namespace ropewalk::c
