#include "bootstrap/auth.h"

#include <sodium.h>

#include <cassert>

namespace ropewalk::bootstrap {
namespace {

static_assert(crypto_auth_KEYBYTES == std::tuple_size_v<Key>);
static_assert(crypto_auth_BYTES == std::tuple_size_v<Mac>);

constexpr std::string_view kPublicSecret = "ropewalk: no job key was set";

/// Bytes as libsodium takes them.
const unsigned char* raw(const auto& range) {
  return reinterpret_cast<const unsigned char*>(range.data());
}

/// label, Hello, and the Challenge without its MAC.
Bytes transcript(std::string_view label, const Hello& hello, Challenge challenge) {
  challenge.mac = {};
  const auto name = std::as_bytes(std::span(label));
  Bytes all(name.begin(), name.end());
  for (const Bytes& part : {encode(hello), encode(challenge)})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

std::string to_hex(const Key& bytes) {
  std::array<char, 2 * std::tuple_size_v<Key> + 1> hex;
  return sodium_bin2hex(hex.data(), hex.size(), bytes.data(), bytes.size());
}

constexpr std::string_view kAcceptorLabel = "ropewalk acceptor";
constexpr std::string_view kDialerLabel = "ropewalk dialer  ";

/// sodium_init() returns 1 when an earlier call has succeeded.
[[maybe_unused]] bool cryptography_has_started() {
  return sodium_init() == 1;
}

template <class Array>
Array random_array() {
  assert(cryptography_has_started());
  Array array;
  randombytes_buf(array.data(), array.size());
  return array;
}

Key hash(const auto& message, std::span<const unsigned char> key) {
  assert(cryptography_has_started());
  Key digest;
  crypto_generichash(digest.data(), digest.size(), raw(message), message.size(), key.data(),
                     key.size());
  return digest;
}

Mac mac_of(const Key& key, const Bytes& message) {
  Mac mac;
  crypto_auth(reinterpret_cast<unsigned char*>(mac.data()), raw(message), message.size(),
              key.data());
  return mac;
}

bool mac_matches(const Key& key, const Bytes& message, const Mac& mac) {
  return crypto_auth_verify(raw(mac), raw(message), message.size(), key.data()) == 0;
}

}  // namespace

void start_cryptography() {
  if (sodium_init() < 0)
    throw Error(ErrorCode::system, "bootstrap", "libsodium cannot start",
                "is /dev/urandom readable?");
}

Key job_key(std::string_view secret) {
  return hash(secret.empty() ? kPublicSecret : secret, {});
}

Key session_key(const Key& job, const WorldId& world) {
  return hash(world, job);
}

Nonce random_nonce() {
  return random_array<Nonce>();
}

WorldId random_world_id() {
  return random_array<WorldId>();
}

std::string random_secret() {
  return to_hex(random_array<Key>());
}

std::string part_secret(std::string_view whole, std::string_view nonce) {
  return to_hex(hash("ropewalk part " + std::string(nonce), job_key(whole)));
}

Challenge challenge_for(const Key& key, const Hello& hello) {
  Challenge challenge;
  challenge.nonce = random_nonce();
  challenge.mac = mac_of(key, transcript(kAcceptorLabel, hello, challenge));
  return challenge;
}

bool verify(const Key& key, const Hello& hello, const Challenge& challenge) {
  return mac_matches(key, transcript(kAcceptorLabel, hello, challenge), challenge.mac);
}

Mac proof_for(const Key& key, const Hello& hello, const Challenge& challenge) {
  return mac_of(key, transcript(kDialerLabel, hello, challenge));
}

bool verify(const Key& key, const Hello& hello, const Challenge& challenge, const Mac& proof) {
  return mac_matches(key, transcript(kDialerLabel, hello, challenge), proof);
}

}  // namespace ropewalk::bootstrap
