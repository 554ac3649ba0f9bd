#include "bootstrap/secure_channel.h"

#include <sodium.h>

#include <algorithm>

#include "base/little_endian.h"

namespace ropewalk {
namespace {

static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == std::tuple_size_v<Key>);
static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == SecureChannel::kTagBytes);

using Nonce = std::array<std::byte, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

Nonce nonce_of(uint64_t record) {
  Nonce nonce{};
  little_endian::store(nonce.data(), record);
  return nonce;
}

unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

}  // namespace

SecureChannel::~SecureChannel() {
  sodium_memzero(&keys_, sizeof keys_);
}

void SecureChannel::seal(std::span<const std::byte> plain, std::vector<std::byte>& into) {
  while (!plain.empty()) {
    const auto part = plain.first(std::min(plain.size(), kPlainBytesMax));
    plain = plain.subspan(part.size());
    const size_t at = into.size();
    into.resize(at + kHeaderBytes + part.size() + kTagBytes);
    std::byte* const header = into.data() + at;
    little_endian::store(header, static_cast<uint32_t>(part.size() + kTagBytes));
    const Nonce nonce = nonce_of(sealed_++);
    crypto_aead_chacha20poly1305_ietf_encrypt(raw(header + kHeaderBytes), nullptr, raw(part.data()),
                                              part.size(), raw(header), kHeaderBytes, nullptr,
                                              raw(nonce.data()), keys_.send.data());
  }
}

std::optional<size_t> SecureChannel::record_bytes(std::span<const std::byte> received) {
  if (received.size() < kHeaderBytes) return {};
  const size_t sealed_bytes = little_endian::load<uint32_t>(received.data());
  const bool is_one = sealed_bytes > kTagBytes && sealed_bytes <= kPlainBytesMax + kTagBytes;
  return is_one ? kHeaderBytes + sealed_bytes : 0;
}

bool SecureChannel::open(std::vector<std::byte>& received, std::vector<std::byte>& plain) {
  size_t at = 0;
  while (!is_broken_) {
    const auto rest = std::span(received).subspan(at);
    const auto bytes = record_bytes(rest);
    if (!bytes || *bytes > rest.size()) break;
    is_broken_ = *bytes == 0 || !open_record(rest.first(*bytes), plain);
    if (!is_broken_) at += *bytes;
  }
  received.erase(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(at));
  return !is_broken_;
}

bool SecureChannel::open_record(std::span<const std::byte> record, std::vector<std::byte>& plain) {
  const auto sealed = record.subspan(kHeaderBytes);
  const size_t end = plain.size();
  plain.resize(end + sealed.size() - kTagBytes);
  const Nonce nonce = nonce_of(opened_++);
  const bool is_authentic =
      crypto_aead_chacha20poly1305_ietf_decrypt(
          raw(plain.data() + end), nullptr, nullptr, raw(sealed.data()), sealed.size(),
          raw(record.data()), kHeaderBytes, raw(nonce.data()), keys_.receive.data()) == 0;
  if (!is_authentic) plain.resize(end);
  return is_authentic;
}

}  // namespace ropewalk
