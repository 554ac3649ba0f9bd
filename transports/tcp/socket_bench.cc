// What programs get that use sockets, or TLS 1.3 over them (OpenSSL), and do nothing else: the
// transport is measured beside it.
#include <benchmark/benchmark.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "transports/tcp/bench_backoff.h"
#include "transports/tcp/test_sockets.h"

namespace ropewalk::tcp {
namespace {

const std::atomic<bool> kNever = false;

// ---- Sides: each call returns true once a whole message has gone or come ----

class RawSide {
 public:
  RawSide(int fd, size_t bytes) : fd_(fd), out_(bytes), in_(bytes) {}
  ~RawSide() { close(fd_); }
  bool send_some() {
    const ssize_t n = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n > 0) sent_ += static_cast<size_t>(n);
    return sent_ == out_.size() && std::exchange(sent_, 0) > 0;
  }
  bool receive_some(const std::atomic<bool>& stop) {
    const ssize_t n = ::recv(fd_, in_.data() + got_, in_.size() - got_, 0);
    if (n > 0) got_ += static_cast<size_t>(n);
    if (got_ < in_.size()) return stop.load(std::memory_order_relaxed);
    got_ = 0;
    return true;
  }

 private:
  int fd_;
  std::vector<std::byte> out_, in_;
  size_t sent_ = 0, got_ = 0;
};

struct FreeTls {
  void operator()(SSL* tls) const { SSL_free(tls); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

class TlsSide {
 public:
  TlsSide(int fd, size_t bytes, SSL_CTX* context, bool accepts)
      : fd_(fd), tls_(SSL_new(context)), out_(bytes), in_(bytes) {
    SSL_set_fd(tls_.get(), fd);
    if (accepts)
      SSL_set_accept_state(tls_.get());
    else
      SSL_set_connect_state(tls_.get());
  }
  ~TlsSide() { close(fd_); }
  bool shake_hands() { return SSL_do_handshake(tls_.get()) == 1; }
  bool send_some() {
    size_t n = 0;
    if (SSL_write_ex(tls_.get(), out_.data() + sent_, out_.size() - sent_, &n) == 1) sent_ += n;
    return sent_ == out_.size() && std::exchange(sent_, 0) > 0;
  }
  bool receive_some(const std::atomic<bool>& stop) {
    size_t n = 0;
    while (got_ < in_.size() &&
           SSL_read_ex(tls_.get(), in_.data() + got_, in_.size() - got_, &n) == 1)
      got_ += n;
    if (got_ < in_.size()) return stop.load(std::memory_order_relaxed);
    got_ = 0;
    return true;
  }

 private:
  int fd_;
  std::unique_ptr<SSL, FreeTls> tls_;
  std::vector<std::byte> out_, in_;
  size_t sent_ = 0, got_ = 0;
};

// ---- Pairs of them, on one loopback connection ----

struct RawPair {
  explicit RawPair(size_t bytes, std::array<int, 2> fds = loopback_pair())
      : a(fds[0], bytes), b(fds[1], bytes) {
    const int on = 1;
    for (const int fd : fds) setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
  }
  RawSide a, b;
};

/// With a certificate of its own that nobody checks. Reads ahead, and writes as much as it can.
std::unique_ptr<SSL_CTX, FreeTls> tls_context() {
  const std::unique_ptr<EVP_PKEY, FreeTls> key(EVP_EC_gen("P-256"));
  const std::unique_ptr<X509, FreeTls> certificate(X509_new());
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  std::unique_ptr<SSL_CTX, FreeTls> context(SSL_CTX_new(TLS_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384");
  SSL_CTX_use_certificate(context.get(), certificate.get());
  SSL_CTX_use_PrivateKey(context.get(), key.get());
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), 256 << 10);
  return context;
}

struct TlsPair {
  explicit TlsPair(size_t bytes, std::array<int, 2> fds = loopback_pair())
      : a(fds[0], bytes, context.get(), false), b(fds[1], bytes, context.get(), true) {
    const int on = 1;
    for (const int fd : fds) setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    bool a_ready = false, b_ready = false;
    for (int tries = 0; !a_ready || !b_ready; ++tries) {
      if (tries > 1'000'000) std::abort();
      a_ready = a_ready || a.shake_hands();
      b_ready = b_ready || b.shake_hands();
    }
  }
  const std::unique_ptr<SSL_CTX, FreeTls> context = tls_context();
  TlsSide a, b;
};

// ---- What is measured: as in tcp_transport_bench.cc ----

template <class Pair>
void ping_pong(benchmark::State& state) {
  Pair pair(static_cast<size_t>(state.range(0)));
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    Backoff backoff;
    while (!stop) {
      while (!pair.b.receive_some(stop)) backoff.idle();
      while (!stop && !pair.b.send_some()) backoff.idle();
    }
  });
  Backoff backoff;
  for (auto _ : state) {
    while (!pair.a.send_some()) backoff.idle();
    while (!pair.a.receive_some(kNever)) backoff.idle();
  }
  stop = true;
  echo.join();
}

/// One message, both sides in one thread.
void raw_turn(benchmark::State& state) {
  RawPair pair(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    for (bool sent = false, got = false; !got;) {
      sent = sent || pair.a.send_some();
      got = pair.b.receive_some(kNever);
    }
  }
}

template <class Pair>
void stream(benchmark::State& state) {
  const bool both = state.range(1) == 2;
  Pair pair(static_cast<size_t>(state.range(0)));
  std::atomic<bool> stop = false;
  std::thread far([&] {
    while (!stop) {
      pair.b.receive_some(stop);
      if (both) pair.b.send_some();
    }
  });
  for (auto _ : state) {
    bool sent = false, got = !both;
    while (!sent || !got) {
      sent = sent || pair.a.send_some();
      got = got || pair.a.receive_some(kNever);
    }
  }
  stop = true;
  far.join();
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1));
}

BENCHMARK(raw_turn)->Arg(8)->Arg(4 << 10)->Arg(64 << 10)->Arg(256 << 10)->Arg(4 << 20);
// bytes
BENCHMARK(ping_pong<RawPair>)
    ->Name("raw_ping_pong")
    ->ArgsProduct({{8, 4 << 10, 64 << 10, 256 << 10}})
    ->UseRealTime();
BENCHMARK(ping_pong<TlsPair>)
    ->Name("tls_ping_pong")
    ->ArgsProduct({{8, 4 << 10, 64 << 10, 256 << 10}})
    ->UseRealTime();
// bytes, directions
BENCHMARK(stream<RawPair>)
    ->Name("raw_stream")
    ->ArgsProduct({{64 << 10, 256 << 10, 4 << 20}, {1, 2}})
    ->UseRealTime();
BENCHMARK(stream<TlsPair>)
    ->Name("tls_stream")
    ->ArgsProduct({{64 << 10, 256 << 10, 4 << 20}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace ropewalk::tcp
