#include "bootstrap/peer_table.h"

#include <pthread.h>

#include <map>
#include <mutex>

namespace ropewalk::bootstrap {
namespace {

/// What ranks of this process have.
struct SharedRecords {
  struct Entry {
    std::weak_ptr<const Bytes> frame;
    std::weak_ptr<const std::vector<PeerRecord>> records;
  };
  std::mutex mutex;
  std::map<Digest, Entry> entries;  // guarded by mutex

  static SharedRecords& all() {
    static auto& all = *new SharedRecords;  // threads may outlive what is static
    return all;
  }

 private:
  SharedRecords() {
    pthread_atfork([] { all().mutex.lock(); }, [] { all().mutex.unlock(); },
                   [] { all().mutex.unlock(); });
  }
};

}  // namespace

RecordsFrame share_records(const Digest& digest, const Frame& frame, bool wants_frame) {
  SharedRecords& shared = SharedRecords::all();
  const std::lock_guard lock(shared.mutex);
  const auto known = shared.entries.find(digest);
  RecordsFrame result;
  if (known != shared.entries.end())
    result = {known->second.frame.lock(), known->second.records.lock()};
  if (!result.records) {
    std::erase_if(shared.entries, [](const auto& entry) { return entry.second.records.expired(); });
    auto came = decode<Records>(frame.payload);
    if (!came) return {};
    result.records = std::make_shared<const std::vector<PeerRecord>>(std::move(came->records));
  }
  if (!result.frame && wants_frame)
    result.frame = std::make_shared<const Bytes>(bootstrap::frame(frame.type, frame.payload));
  shared.entries[digest] = {result.frame, result.records};
  return result;
}

}  // namespace ropewalk::bootstrap
