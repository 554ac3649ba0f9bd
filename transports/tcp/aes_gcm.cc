#include "transports/tcp/aes_gcm.h"

#include <sodium.h>

#include <array>
#include <cassert>

#include "base/little_endian.h"
#include "ropewalk/status.h"

#ifdef ROPEWALK_WITH_IPSEC_MB
#include <intel-ipsec-mb.h>
#else
#include <openssl/evp.h>
#endif

namespace ropewalk::tcp {
namespace {

using Nonce = std::array<unsigned char, 12>;
using Tag = std::array<unsigned char, AesGcm::kTagBytes>;

Nonce bytes_of(uint64_t nonce) {
  Nonce bytes{};
  little_endian::store(reinterpret_cast<std::byte*>(bytes.data()), nonce);
  return bytes;
}

unsigned char* raw(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

[[noreturn]] void fail_without(const char* library) {
  throw Error(ErrorCode::system, "tcp", std::string(library) + " cannot be used",
              "give the process more memory, or unset ROPEWALK_SECURE");
}

}  // namespace

#ifdef ROPEWALK_WITH_IPSEC_MB

namespace {

/// The library's functions for this processor. Never changes once made.
const IMB_MGR& library() {
  static const std::unique_ptr<IMB_MGR, void (*)(IMB_MGR*)> made = [] {
    IMB_MGR* const manager = alloc_mb_mgr(0);
    if (manager == nullptr) fail_without("libIPSec_MB");
    init_mb_mgr_auto(manager, nullptr);
    return std::unique_ptr<IMB_MGR, void (*)(IMB_MGR*)>(manager, free_mb_mgr);
  }();
  return *made;
}

}  // namespace

struct AesGcm::State {
  gcm_key_data key;
  gcm_context_data context;
};

AesGcm::AesGcm(const Key& key) : state_(std::make_unique<State>()) {
  set_key(key);
}

void AesGcm::set_key(const Key& key) {
  library().gcm256_pre(key.data(), &state_->key);
}

AesGcm::~AesGcm() {
  if (state_) sodium_memzero(state_.get(), sizeof *state_);
}

void AesGcm::seal(uint64_t nonce, std::span<const std::byte> header,
                  std::span<const std::byte> plain, std::byte* into) {
  const Nonce iv = bytes_of(nonce);
  library().gcm256_enc(&state_->key, &state_->context, raw(into), raw(plain.data()), plain.size(),
                       iv.data(), raw(header.data()), header.size(), raw(into + plain.size()),
                       kTagBytes);
}

bool AesGcm::open(uint64_t nonce, std::span<const std::byte> header,
                  std::span<const std::byte> sealed, std::byte* into) {
  assert(sealed.size() >= kTagBytes);
  const Nonce iv = bytes_of(nonce);
  const auto text = sealed.first(sealed.size() - kTagBytes);
  Tag tag;
  library().gcm256_dec(&state_->key, &state_->context, raw(into), raw(text.data()), text.size(),
                       iv.data(), raw(header.data()), header.size(), tag.data(), kTagBytes);
  return sodium_memcmp(tag.data(), sealed.data() + text.size(), kTagBytes) == 0;
}

#else

// Without an argument to say otherwise OpenSSL's calls with a context that was set up cannot fail,
// except where a tag is wrong.
struct AesGcm::State {
  EVP_CIPHER_CTX* sealing = EVP_CIPHER_CTX_new();
  EVP_CIPHER_CTX* opening = EVP_CIPHER_CTX_new();
  ~State() {  // wipes both
    EVP_CIPHER_CTX_free(sealing);
    EVP_CIPHER_CTX_free(opening);
  }
};

AesGcm::AesGcm(const Key& key) : state_(std::make_unique<State>()) {
  if (state_->sealing == nullptr || state_->opening == nullptr) fail_without("libcrypto");
  set_key(key);
}

void AesGcm::set_key(const Key& key) {
  const auto* const cipher = EVP_aes_256_gcm();
  if (EVP_EncryptInit_ex(state_->sealing, cipher, nullptr, key.data(), nullptr) != 1 ||
      EVP_DecryptInit_ex(state_->opening, cipher, nullptr, key.data(), nullptr) != 1)
    fail_without("AES-256-GCM of libcrypto");
}

AesGcm::~AesGcm() = default;

void AesGcm::seal(uint64_t nonce, std::span<const std::byte> header,
                  std::span<const std::byte> plain, std::byte* into) {
  const Nonce iv = bytes_of(nonce);
  EVP_CIPHER_CTX* const context = state_->sealing;
  int bytes = 0;
  EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, iv.data());
  EVP_EncryptUpdate(context, nullptr, &bytes, raw(header.data()), static_cast<int>(header.size()));
  EVP_EncryptUpdate(context, raw(into), &bytes, raw(plain.data()), static_cast<int>(plain.size()));
  EVP_EncryptFinal_ex(context, raw(into + plain.size()), &bytes);
  EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, into + plain.size());
}

bool AesGcm::open(uint64_t nonce, std::span<const std::byte> header,
                  std::span<const std::byte> sealed, std::byte* into) {
  assert(sealed.size() >= kTagBytes);
  const Nonce iv = bytes_of(nonce);
  const auto text = sealed.first(sealed.size() - kTagBytes);
  EVP_CIPHER_CTX* const context = state_->opening;
  int bytes = 0;
  EVP_DecryptInit_ex(context, nullptr, nullptr, nullptr, iv.data());
  EVP_DecryptUpdate(context, nullptr, &bytes, raw(header.data()), static_cast<int>(header.size()));
  EVP_DecryptUpdate(context, raw(into), &bytes, raw(text.data()), static_cast<int>(text.size()));
  EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagBytes,
                      const_cast<std::byte*>(sealed.data() + text.size()));
  return EVP_DecryptFinal_ex(context, raw(into + text.size()), &bytes) == 1;
}

#endif

AesGcm::AesGcm(AesGcm&& other) noexcept = default;
AesGcm& AesGcm::operator=(AesGcm&& other) noexcept = default;

}  // namespace ropewalk::tcp
