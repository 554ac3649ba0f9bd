// Networks in a few words: "racks:32x16:uplink=4".
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/text.h"
#include "network/network.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr int kHostsMax = 1 << 17;
// As in descriptions (network_json.cc).
constexpr double kSecondsMax = 1000, kMbpsMin = 0.99e-3, kMbpsMax = 1.01e9;

[[noreturn]] void refuse_words(const std::string& words, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "network",
              fmt::format("\"{}\": {}", printable(words), printable(why)),
              "write flat:hosts=8, racks:32x16:uplink=4, fat-tree:k=8, rail:hosts=4:gpus=8, "
              "torus:4x4x4, or the path of a description (docs/network.md)");
}

/// NAME, AxBxC and key=value, with colons (or commas) between.
class TemplateWords {
 public:
  explicit TemplateWords(const std::string& words) : words_(words) {
    bool is_first = true;
    for (const std::string_view piece : split(words, ':')) {
      if (std::exchange(is_first, false)) {
        name = piece;
      } else if (piece.find('=') == piece.npos) {
        for (const std::string_view side : split(piece, 'x')) sides.push_back(count_of(side));
      } else {
        for (const std::string_view setting : split(piece, ',')) {
          const size_t equals = std::min(setting.find('='), setting.size());
          const std::string key(setting.substr(0, equals));
          if (!settings_.try_emplace(key, setting.substr(std::min(equals + 1, setting.size())))
                   .second)
            refuse_words(words_, key + " is there twice");
        }
      }
    }
  }

  bool has(const std::string& key) const { return settings_.contains(key); }
  int count(const std::string& key, int otherwise) {
    const auto text = take(key);
    return text ? count_of(*text) : otherwise;
  }
  double number(const std::string& key, double otherwise) {
    const auto text = take(key);
    return text ? scaled(*text, {{"", 1}}) : otherwise;
  }
  double seconds(const std::string& key, double otherwise) {
    const auto text = take(key);
    if (!text) return otherwise;
    const double value = scaled(*text, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
    if (value > kSecondsMax)
      refuse_words(words_,
                   fmt::format("{} is {}; up to {} s is possible", key, *text, kSecondsMax));
    return value;
  }
  double s_per_byte(const std::string& key, double otherwise) {
    const auto text = take(key);
    if (!text) return otherwise;
    return 8 / scaled(*text, {{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}});
  }
  void end() const {
    if (!settings_.empty())
      refuse_words(words_, fmt::format("there is no setting \"{}\"", settings_.begin()->first));
  }

  std::string name;
  std::vector<int> sides;

 private:
  std::optional<std::string_view> take(const std::string& key) {
    const auto found = settings_.find(key);
    if (found == settings_.end()) return {};
    const std::string_view text = found->second;
    settings_.erase(found);
    return text;
  }
  int count_of(std::string_view text) const {
    const auto value = parse_number<int>(text);
    if (!value || *value < 1 || *value > kHostsMax)
      refuse_words(words_, fmt::format("\"{}\" is no number from 1 to {}", text, kHostsMax));
    return *value;
  }
  /// A positive number and a unit.
  double scaled(std::string_view text, const std::map<std::string_view, double>& units) const {
    const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
    const auto value = parse_number<double>(text.substr(0, end));
    const auto unit = units.find(text.substr(end));
    if (!value || unit == units.end() || !(*value > 0) || *value > 1e12)
      refuse_words(words_, fmt::format("\"{}\" is no positive number with its unit", text));
    return *value * unit->second;
  }

  const std::string words_;
  std::map<std::string, std::string_view> settings_;
};

class TemplateBuilder {
 public:
  TemplateBuilder(const std::string& words, int ranks)
      : words_(words), told_(words), ranks_(ranks), per_host_(told_.count("ranks", 0)) {
    s_per_byte_ = told_.s_per_byte("rate", 8 / 100e9);
    network_.given.between_latency = told_.has("latency");
    network_.given.between_overhead = told_.has("overhead");
    network_.between.latency_s = told_.seconds("latency", network_.between.latency_s);
    network_.between.overhead_s = told_.seconds("overhead", network_.between.overhead_s);
  }

  Network run() {
    if (told_.name == "flat")
      flat();
    else if (told_.name == "racks")
      racks();
    else if (told_.name == "fat-tree")
      fat_tree();
    else if (told_.name == "rail")
      rail();
    else if (told_.name == "torus")
      torus();
    else
      refuse_words(words_, fmt::format("there is no template \"{}\"", told_.name));
    told_.end();
    for (const NetworkLink& link : network_.links) check_rate(link);
    check_network(network_);
    return std::move(network_);
  }

 private:
  /// As in descriptions.
  void check_rate(const NetworkLink& link) const {
    const double mbps = 8e-6 / link.s_per_byte;
    if (mbps < kMbpsMin || mbps > kMbpsMax)
      refuse_words(words_, fmt::format("a link of {:g} Mbit/s; {:g} to {:g} is possible", mbps,
                                       kMbpsMin, kMbpsMax));
  }
  void want_no_sides() const {
    if (!told_.sides.empty())
      refuse_words(words_, fmt::format("{} takes no sizes, only settings", told_.name));
  }
  void want_sides(size_t least, size_t most) const {
    if (told_.sides.size() < least || told_.sides.size() > most)
      refuse_words(words_, fmt::format("{} wants {}sizes with x between", told_.name,
                                       least == most ? fmt::format("{} ", least) : ""));
  }
  /// All hosts alike.
  void add_hosts(int64_t count) {
    if (count > kHostsMax) refuse_words(words_, fmt::format("{} hosts are too many", count));
    int each = std::max(per_host_, 1);
    if (per_host_ == 0 && ranks_ > 0) each = static_cast<int>(ranks_ / count);
    if (ranks_ > 0 && each * count != ranks_)
      refuse_words(words_, fmt::format("{} ranks on {} hosts{}: it must be as many on each", ranks_,
                                       count, per_host_ > 0 ? fmt::format(" of {}", each) : ""));
    if (each > kRanksPerHostMax)
      refuse_words(words_, fmt::format("{} ranks on one host; 1 to {} are possible", each,
                                       kRanksPerHostMax));
    for (int i = 0; i < count; ++i) network_.hosts.push_back({fmt::format("h{}", i), each});
  }
  int add_switch(std::string name) {
    network_.switches.push_back(std::move(name));
    return network_.node_count() - 1;
  }
  void join(int a, int b, double s_per_byte) {
    network_.links.push_back({{a, b}, s_per_byte, 0, 50});
  }

  void flat() {
    want_no_sides();
    const int each = std::max(per_host_, 1);
    add_hosts(told_.count("hosts", ranks_ > 0 ? std::max(ranks_ / each, 1) : 2));
    const int center = add_switch("s0");
    for (int host = 0; host < network_.host_count(); ++host) join(host, center, s_per_byte_);
  }

  /// `uplink`: how many times as much the hosts of a rack can send as its uplink carries.
  void racks() {
    want_sides(2, 2);
    const int count = told_.sides[0], each = told_.sides[1];
    const double uplink = s_per_byte_ * told_.number("uplink", 1) / each;
    add_hosts(int64_t{count} * each);
    std::vector<int> switches;
    for (int rack = 0; rack < count; ++rack)
      switches.push_back(add_switch(fmt::format("rack{}", rack)));
    const int core = add_switch("core");
    for (int host = 0; host < network_.host_count(); ++host)
      join(host, switches[static_cast<size_t>(host / each)], s_per_byte_);
    for (const int rack : switches) join(rack, core, uplink);
  }

  /// Al-Fares and others 2008: k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores.
  /// `uplink` as above, above the edge switches.
  void fat_tree() {
    want_no_sides();
    const int k = told_.count("k", 4), half = k / 2;
    if (k % 2 != 0 || k > 48) refuse_words(words_, "k must be even, and at most 48");
    const double up = s_per_byte_ * told_.number("uplink", 1);
    add_hosts(int64_t{k} * half * half);
    std::vector<int> edges, aggregates, cores;
    for (int i = 0; i < k * half; ++i) edges.push_back(add_switch(fmt::format("edge{}", i)));
    for (int i = 0; i < k * half; ++i) aggregates.push_back(add_switch(fmt::format("agg{}", i)));
    for (int i = 0; i < half * half; ++i) cores.push_back(add_switch(fmt::format("core{}", i)));
    const auto at = [](const std::vector<int>& list, int i) {
      return list[static_cast<size_t>(i)];
    };
    for (int host = 0; host < network_.host_count(); ++host)
      join(host, at(edges, host / half), s_per_byte_);
    for (int pod = 0; pod < k; ++pod)
      for (int i = 0; i < half; ++i)
        for (int j = 0; j < half; ++j) {
          join(at(edges, pod * half + i), at(aggregates, pod * half + j), up);
          join(at(aggregates, pod * half + i), at(cores, i * half + j), up);
        }
  }

  /// Adapter g of every host at rail g; a spine above the rails.
  void rail() {
    want_no_sides();
    const int adapters = told_.count("gpus", 8);
    if (adapters > 64) refuse_words(words_, "gpus: at most 64");
    if (per_host_ == 0) per_host_ = adapters;
    const int count = told_.count("hosts", ranks_ > 0 ? std::max(ranks_ / per_host_, 1) : 4);
    const double spine_times = told_.number("uplink", 1);
    add_hosts(count);
    std::vector<int> rails;
    for (int g = 0; g < adapters; ++g) rails.push_back(add_switch(fmt::format("rail{}", g)));
    const int spine = add_switch("spine");
    for (int host = 0; host < count; ++host)
      for (const int to : rails) join(host, to, s_per_byte_);
    for (const int to : rails) join(to, spine, s_per_byte_ * spine_times / count);
  }

  /// A router for each host, joined with the next one in every dimension, around.
  void torus() {
    want_sides(1, 5);
    int64_t count = 1;
    for (const int side : told_.sides) count = std::min<int64_t>(count * side, kHostsMax + 1);
    add_hosts(count);
    for (int i = 0; i < count; ++i) join(i, add_switch(fmt::format("r{}", i)), s_per_byte_);
    for (int i = 0; i < count; ++i)
      for (int64_t d = 0, stride = 1; d < std::ssize(told_.sides); ++d) {
        const int side = told_.sides[static_cast<size_t>(d)];
        const int64_t place = i / stride % side;
        const int64_t next = i + ((place + 1) % side - place) * stride;
        if (side > 2 || (side == 2 && place == 0))
          join(static_cast<int>(count) + i, static_cast<int>(count + next), s_per_byte_);
        stride *= side;
      }
  }

  const std::string words_;
  TemplateWords told_;
  const int ranks_;
  int per_host_;
  double s_per_byte_ = 0;
  Network network_;
};

}  // namespace

Network network_of_template(std::string_view words, int ranks) {
  return TemplateBuilder(std::string(words), ranks).run();
}

}  // namespace ropewalk
