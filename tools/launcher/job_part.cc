#include "tools/launcher/job_part.h"

#include <algorithm>
#include <limits>

#include "ropewalk/status.h"
#include "tools/launcher/frames.h"
#include "tools/launcher/hosts.h"

namespace ropewalk::tools {
namespace {

void put(std::string& to, std::string_view word) {
  to += word;
  to += '\0';
}

std::string_view take(std::string_view& from) {
  const size_t end = from.find('\0');
  if (end == std::string_view::npos) throw Error(ErrorCode::protocol, "job", "it is cut short");
  const std::string_view word = from.substr(0, end);
  from.remove_prefix(end + 1);
  return word;
}

int take_number(std::string_view& from, int low, int high) {
  const int value = number_in(take(from));
  if (value < low || value > high) throw Error(ErrorCode::protocol, "job", "number out of range");
  return value;
}

std::vector<std::string> take_list(std::string_view& from) {
  std::vector<std::string> words(static_cast<size_t>(take_number(from, 0, 1 << 20)));
  for (std::string& word : words) word = take(from);
  return words;
}

}  // namespace

std::string encode(const JobPart& part) {
  std::string bytes;
  for (const int number :
       {part.size, part.first_rank, part.ranks, part.slots, part.first_local_rank, part.local_size,
        part.local_slots, part.launcher_timeout_ms, int{part.listen}, int{part.elastic},
        int{part.loopback}, int{part.bind}, int{part.forward_stdin}}) {
    put(bytes, std::to_string(number));
  }
  put(bytes, part.job_key);
  put(bytes, part.workdir);
  for (const auto* list : {&part.program, &part.environment}) {
    put(bytes, std::to_string(list->size()));
    for (const std::string& word : *list) put(bytes, word);
  }
  return bytes;
}

JobPart decode_job_part(std::string_view bytes) {
  JobPart part;
  part.size = take_number(bytes, 1, kRanksMax);
  part.first_rank = take_number(bytes, 0, part.size);
  part.ranks = take_number(bytes, 0, part.size - part.first_rank);
  part.slots = take_number(bytes, std::max(1, part.ranks), kRanksMax);
  part.first_local_rank = take_number(bytes, 0, kRanksMax);
  part.local_size = take_number(bytes, part.ranks, part.size);
  part.local_slots = take_number(bytes, part.first_local_rank + part.slots, kRanksMax);
  part.launcher_timeout_ms = take_number(bytes, 0, std::numeric_limits<int>::max());
  part.listen = take_number(bytes, 0, 1) == 1;
  part.elastic = take_number(bytes, 0, 1) == 1;
  part.loopback = take_number(bytes, 0, 1) == 1;
  part.bind = take_number(bytes, 0, 1) == 1;
  part.forward_stdin = take_number(bytes, 0, 1) == 1;
  part.job_key = take(bytes);
  part.workdir = take(bytes);
  part.program = take_list(bytes);
  part.environment = take_list(bytes);
  if (part.program.empty()) throw Error(ErrorCode::protocol, "job", "no program");
  return part;
}

}  // namespace ropewalk::tools
