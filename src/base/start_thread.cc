#include "base/start_thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <system_error>

#include "ropewalk/status.h"

namespace ropewalk {

std::thread start_thread(const char* operation, const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw Error(ErrorCode::exhausted, operation,
                fmt::format("cannot start the thread {}: {}", name, error.what()),
                "raise the limit of processes: ulimit -u");
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace ropewalk
