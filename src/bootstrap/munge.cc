#include "bootstrap/munge.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

#include "base/log.h"
#include "base/shared_library.h"
#include "base/start_thread.h"

namespace ropewalk::bootstrap {
namespace {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

// munge.h's.
constexpr int kMungeSuccess = 0, kOptionUidRestriction = 9;

constexpr const char* kMungeAdvice =
    "export ROPEWALK_JOB_KEY=$(openssl rand -hex 32) before srun, or set ROPEWALK_COORDINATOR and "
    "ROPEWALK_JOB_KEY on every rank";
constexpr size_t kCredentialBytesMax = 16 << 10;
constexpr auto kPauseMin = 10ms, kPauseMax = 200ms, kAnswerMax = 5000ms;
constexpr int kExhaustedPauseMs = 20;

[[noreturn]] void fail_munge(ErrorCode code, std::string reason) {
  throw Error(code, "munge", std::move(reason), kMungeAdvice);
}

}  // namespace

struct Munge::Library {
  static const Library& loaded() {
    static const Library library;
    return library;
  }

  using Context = void;
  struct EndContext {
    void (*destroy)(Context*);
    void operator()(Context* context) const { destroy(context); }
  };
  std::unique_ptr<Context, EndContext> make_context() const { return {create(), {destroy}}; }

  Context* (*create)() = nullptr;
  void (*destroy)(Context*) = nullptr;
  int (*set)(Context*, int option, ...) = nullptr;
  const char* (*context_error)(Context*) = nullptr;
  int (*encode)(char** credential, Context*, const void* text, int bytes) = nullptr;
  int (*decode)(const char* credential, Context*, void** text, int* bytes, uid_t*,
                gid_t*) = nullptr;
  const char* (*error)(int) = nullptr;

 private:
  Library() {
    SharedLibrary library({"libmunge.so.2"});
    library.find("munge_ctx_create", create);
    library.find("munge_ctx_destroy", destroy);
    library.find("munge_ctx_set", set);
    library.find("munge_ctx_strerror", context_error);
    library.find("munge_encode", encode);
    library.find("munge_decode", decode);
    library.find("munge_strerror", error);
    if (!library.missing().empty())
      fail_munge(ErrorCode::unavailable,
                 fmt::format("there is no job key, and Slurm's ranks cannot agree on one: {}",
                             library.missing()));
  }
};

Munge::Munge() : library_(Library::loaded()) {}

std::string Munge::encode(const std::string& text) const {
  const auto context = library_.make_context();
  char* credential = nullptr;
  const bool is_for_this_user =
      context != nullptr &&
      library_.set(context.get(), kOptionUidRestriction, ::geteuid()) == kMungeSuccess;
  const int error = is_for_this_user ? library_.encode(&credential, context.get(), text.data(),
                                                       static_cast<int>(text.size()))
                                     : ENOMEM;
  const std::unique_ptr<char, decltype(&std::free)> owner(credential, &std::free);
  if (error == kMungeSuccess) return credential;
  const char* why = context != nullptr ? library_.context_error(context.get()) : nullptr;
  fail_munge(ErrorCode::unavailable,
             fmt::format("there is no job key, and munge makes no credential: {}",
                         why == nullptr ? library_.error(error) : why));
}

std::optional<std::string> Munge::decode(const std::string& credential, std::string& why) const {
  const auto context = library_.make_context();
  void* text = nullptr;
  int bytes = 0;
  uid_t user = 0;
  gid_t group = 0;
  const int error =
      library_.decode(credential.c_str(), context.get(), &text, &bytes, &user, &group);
  const std::unique_ptr<void, decltype(&std::free)> owner(text, &std::free);
  if (error != kMungeSuccess) {
    const char* told = context != nullptr ? library_.context_error(context.get()) : nullptr;
    why = fmt::format("munge: {}", told == nullptr ? library_.error(error) : told);
    return {};
  }
  if (user != ::geteuid()) {
    why = fmt::format("user {} listens there", user);
    return {};
  }
  return std::string(static_cast<const char*>(text), static_cast<size_t>(bytes));
}

CredentialServer::CredentialServer(UniqueFd listener, std::string text)
    : listener_(std::move(listener)), text_(std::move(text)) {
  assert(listener_ && !text_.empty());
  munge_.encode(text_);  // where that fails, it is this rank that should tell
  thread_ = start_thread("bootstrap", "ropewalk-munge", [this] { run(); });
}

CredentialServer::~CredentialServer() {
  stop_.set();
  thread_.join();
}

void CredentialServer::run() {
  std::array<pollfd, 2> fds{{{listener_.get(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}}};
  for (;;) {
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    const UniqueFd client(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client && errno != EAGAIN) ::poll(&fds[1], 1, kExhaustedPauseMs);
    if (!client) continue;
    try {
      const std::string credential = munge_.encode(text_);
      // Short beside a fresh socket's buffer: taken whole.
      ::send(client.get(), credential.data(), credential.size(), MSG_NOSIGNAL);
    } catch (const Error& error) {
      log(LogLevel::warn, 0, "{}", error.what());  // that client asks again
    }
  }
}

namespace {

/// Poll for one event until the time; false: it has not come.
bool wait_for(int fd, short events, steady_clock::time_point until) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now());
    pollfd ready{fd, events, 0};
    const int found =
        ::poll(&ready, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, INT_MAX)));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

/// All that is sent from there until the connection ends; empty where it says nothing.
std::string read_all(const SocketAddress& address, steady_clock::time_point until,
                     std::string& why) {
  UniqueFd fd;
  int error = begin_connect(address, fd);
  if (error == 0) error = wait_for(fd.get(), POLLOUT, until) ? finish_connect(fd.get()) : ETIMEDOUT;
  std::string text;
  std::array<char, 1024> chunk;
  while (error == 0 && text.size() < kCredentialBytesMax) {
    if (!wait_for(fd.get(), POLLIN, until)) error = ETIMEDOUT;
    const ssize_t n = error == 0 ? ::recv(fd.get(), chunk.data(), chunk.size(), 0) : 0;
    if (n > 0) text.append(chunk.data(), static_cast<size_t>(n));
    if (n < 0 && errno != EINTR && errno != EAGAIN) error = errno;
    if (error == 0 && n == 0) return text;
  }
  why = error == 0 ? "what listens there is not Ropewalk" : errno_text(error);
  return {};
}

}  // namespace

std::string fetch(const Endpoint& server, const std::string& label,
                  std::chrono::nanoseconds timeout) {
  const Munge munge;
  const auto deadline = steady_clock::now() + timeout;
  std::string why, why_not_taken;  // the latter tells more, also where later nobody listens
  for (auto pause = std::chrono::milliseconds(kPauseMin);;
       pause = std::min(2 * pause, {kPauseMax})) {
    for (const SocketAddress& address : resolve(server, why)) {
      const auto until = std::min(deadline, steady_clock::now() + kAnswerMax);
      const std::string credential = read_all(address, until, why);
      if (credential.empty()) continue;
      const auto text = munge.decode(credential, why_not_taken);
      if (text && text->starts_with(label)) return text->substr(label.size());
      if (text) why_not_taken = "it is another job's, or an earlier communicator's";
    }
    if (steady_clock::now() + pause > deadline)
      fail_munge(
          ErrorCode::timeout,
          fmt::format("rank 0 has not told the job's key at {} (SLURM_STEP_NODELIST) within {:.3g} "
                      "s: {}",
                      to_text(server), std::chrono::duration<double>(timeout).count(),
                      why_not_taken.empty() ? why : why_not_taken));
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ropewalk::bootstrap
