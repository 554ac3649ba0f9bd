#include "transports/verbs/library.h"

#include <infiniband/verbs.h>

#include <string>

#include "base/shared_library.h"
#include "ropewalk/status.h"

// The header has macros of these names, which files that are compiled with this one need again.
#pragma push_macro("ibv_get_device_list")
#pragma push_macro("ibv_query_port")
#undef ibv_get_device_list
#undef ibv_query_port

// Result, name, parameters, arguments.
#define ROPEWALK_VERBS_FUNCTIONS(F)                                                                \
  F(void, ibv_ack_async_event, (ibv_async_event * event), (event))                                 \
  F(void, ibv_ack_cq_events, (ibv_cq * cq, unsigned count), (cq, count))                           \
  F(ibv_pd*, ibv_alloc_pd, (ibv_context * context), (context))                                     \
  F(int, ibv_close_device, (ibv_context * context), (context))                                     \
  F(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * context), (context))                \
  F(ibv_cq*, ibv_create_cq,                                                                        \
    (ibv_context * context, int entries, void* user, ibv_comp_channel* channel, int vector),       \
    (context, entries, user, channel, vector))                                                     \
  F(ibv_qp*, ibv_create_qp, (ibv_pd * pd, ibv_qp_init_attr * attributes), (pd, attributes))        \
  F(int, ibv_dealloc_pd, (ibv_pd * pd), (pd))                                                      \
  F(int, ibv_dereg_mr, (ibv_mr * region), (region))                                                \
  F(int, ibv_destroy_comp_channel, (ibv_comp_channel * channel), (channel))                        \
  F(int, ibv_destroy_cq, (ibv_cq * cq), (cq))                                                      \
  F(int, ibv_destroy_qp, (ibv_qp * qp), (qp))                                                      \
  F(const char*, ibv_event_type_str, (ibv_event_type type), (type))                                \
  F(int, ibv_fork_init, (), ())                                                                    \
  F(void, ibv_free_device_list, (ibv_device * *list), (list))                                      \
  F(int, ibv_get_async_event, (ibv_context * context, ibv_async_event * event), (context, event))  \
  F(int, ibv_get_cq_event, (ibv_comp_channel * channel, ibv_cq * *cq, void** user),                \
    (channel, cq, user))                                                                           \
  F(ibv_device**, ibv_get_device_list, (int* count), (count))                                      \
  F(const char*, ibv_get_device_name, (ibv_device * device), (device))                             \
  F(ibv_fork_status, ibv_is_fork_initialized, (), ())                                              \
  F(int, ibv_modify_qp, (ibv_qp * qp, ibv_qp_attr * attributes, int mask), (qp, attributes, mask)) \
  F(ibv_context*, ibv_open_device, (ibv_device * device), (device))                                \
  F(int, ibv_query_device, (ibv_context * context, ibv_device_attr * attributes),                  \
    (context, attributes))                                                                         \
  F(ssize_t, _ibv_query_gid_table,                                                                 \
    (ibv_context * context, ibv_gid_entry * entries, size_t entries_max, uint32_t flags,           \
     size_t entry_bytes),                                                                          \
    (context, entries, entries_max, flags, entry_bytes))                                           \
  F(int, ibv_query_port,                                                                           \
    (ibv_context * context, uint8_t port, _compat_ibv_port_attr * attributes),                     \
    (context, port, attributes))                                                                   \
  F(ibv_mr*, ibv_reg_mr_iova2,                                                                     \
    (ibv_pd * pd, void* begin, size_t bytes, uint64_t first, unsigned access),                     \
    (pd, begin, bytes, first, access))                                                             \
  F(int, ibv_resize_cq, (ibv_cq * cq, int entries), (cq, entries))                                 \
  F(const char*, ibv_wc_status_str, (ibv_wc_status status), (status))

namespace ropewalk::verbs {
namespace {

struct Library {
#define ROPEWALK_MEMBER(result, name, parameters, arguments) decltype(&::name) name = nullptr;
  ROPEWALK_VERBS_FUNCTIONS(ROPEWALK_MEMBER)
#undef ROPEWALK_MEMBER
};

Library load() {
  SharedLibrary library({"libibverbs.so.1"});
  Library loaded;
#define ROPEWALK_FIND(result, name, parameters, arguments) library.find(#name, loaded.name);
  ROPEWALK_VERBS_FUNCTIONS(ROPEWALK_FIND)
#undef ROPEWALK_FIND
  if (!library.missing().empty())
    throw Error(ErrorCode::unavailable, "verbs",
                "libibverbs cannot be loaded: " + library.missing(),
                "sudo apt-get install libibverbs1 ibverbs-providers; rdma-core 35 or newer");
  return loaded;
}

const Library& lib() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace

void load_library() {
  lib();
}

}  // namespace ropewalk::verbs

// Hidden: others of the process, drivers among them, mean libibverbs itself by these names.
#define ROPEWALK_DEFINE(result, name, parameters, arguments)                \
  extern "C" __attribute__((visibility("hidden"))) result name parameters { \
    return ropewalk::verbs::lib().name arguments;                           \
  }
ROPEWALK_VERBS_FUNCTIONS(ROPEWALK_DEFINE)
#undef ROPEWALK_DEFINE

#pragma pop_macro("ibv_query_port")
#pragma pop_macro("ibv_get_device_list")
