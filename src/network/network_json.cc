// The JSON format: docs/network.md, docs/network.schema.json.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text_file.h"
#include "network/imported.h"
#include "network/located_json.h"
#include "network/network.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

constexpr double kBitsPerByte = 8;
const std::string kOperation = "network";

[[noreturn]] void refuse_at(int line, const std::string& field, const std::string& why) {
  refuse_json(kOperation, line, field, why);
}

class NetworkReader {
 public:
  Network read(const LocatedJson& json) {
    JsonFields top(json, "", kOperation);
    read_list(top.require("hosts"), "hosts", [this](JsonFields& fields, int line) {
      const std::string name = fields.word("name");
      add_node(name, line, fields.path("name"));
      const double ranks = fields.number("ranks", 1, kRanksPerHostMax).value_or(1);
      if (ranks != std::floor(ranks)) refuse_at(line, fields.path("ranks"), "is no whole number");
      network_.hosts.push_back({name, static_cast<int>(ranks)});
    });
    if (network_.hosts.empty()) refuse_at(json.line, "hosts", "is empty");
    if (const LocatedJson* switches = top.take("switches"))
      read_list(*switches, "switches", [this](JsonFields& fields, int line) {
        network_.switches.push_back(fields.word("name"));
        add_node(network_.switches.back(), line, fields.path("name"));
      });
    if (const LocatedJson* links = top.take("links"))
      read_list(*links, "links", [this](JsonFields& fields, int line) { add_link(fields, line); });
    if (const LocatedJson* costs = top.take("costs")) read_costs(*costs);
    top.end();
    check_network(network_);
    return std::move(network_);
  }

 private:
  static constexpr double kTimeMax_us = 1e9, kRateMax = 1e15;

  template <class Read>
  static void read_list(const LocatedJson& json, const std::string& name, const Read& read) {
    size_t index = 0;
    for (const LocatedJson& item : array_of(json, name, kOperation)) {
      JsonFields fields(item, fmt::format("{}[{}]", name, index++), kOperation);
      read(fields, item.line);
      fields.end();
    }
  }
  void add_node(const std::string& name, int line, const std::string& field) {
    if (name.empty() || name.size() > 64) refuse_at(line, field, "must have 1 to 64 characters");
    if (!nodes_.try_emplace(name, static_cast<int>(nodes_.size())).second)
      refuse_at(line, field, fmt::format("is \"{}\", which another one is called", name));
  }
  int end_of(const LocatedJson& json, const std::string& field) const {
    const auto* name = std::get_if<std::string>(&json.value);
    if (name == nullptr)
      refuse_at(json.line, field, "must name a host and a switch, or two switches");
    const auto node = nodes_.find(*name);
    if (node == nodes_.end())
      refuse_at(json.line, field, fmt::format("names \"{}\", which is not there", *name));
    return node->second;
  }
  void add_link(JsonFields& fields, int line) {
    NetworkLink link;
    const std::string field = fields.path("between");
    const LocatedJson::Array& ends = array_of(fields.require("between"), field, kOperation);
    if (ends.size() != 2) refuse_at(line, field, "must have two ends");
    for (const size_t side : {0u, 1u}) link.ends[side] = end_of(ends[side], field);
    if (link.ends[0] == link.ends[1]) refuse_at(line, field, "has the same end twice");
    if (std::max(link.ends[0], link.ends[1]) < network_.host_count())
      refuse_at(line, field, "joins two hosts; put a switch between them");
    if (const auto rate = fields.number("rate_mbps", 1e-3, 1e9))
      link.s_per_byte = kBitsPerByte / (1e6 * *rate);
    link.latency_s = 1e-6 * fields.number("latency_us", 0, kTimeMax_us).value_or(0) +
                     1e-3 * fields.number("delay_ms", 0, 10'000).value_or(0);
    link.buffer_ms = fields.number("buffer_ms", 0.1, 10'000).value_or(50);
    link.bucket_kib = fields.number("bucket_kib", 2, 1024).value_or(32);
    // Of netlab: the simulator loses nothing.
    for (const char* name : {"loss_percent", "reorder_percent"}) fields.number(name, 0, 100);
    fields.number("jitter_ms", 0, 10'000);
    network_.links.push_back(link);
  }
  static void read_cost(const LocatedJson& json, const std::string& where, LinkCost& cost) {
    JsonFields fields(json, where, kOperation);
    const auto seconds = [&fields](const char* name, double otherwise) {
      const auto us = fields.number(name, 0, kTimeMax_us);
      return us ? 1e-6 * *us : otherwise;
    };
    cost.latency_s = seconds("latency_us", cost.latency_s);
    cost.overhead_s = seconds("overhead_us", cost.overhead_s);
    if (where == "costs.within_hosts")
      if (const auto rate = fields.number("bytes_per_s", 1, kRateMax)) cost.s_per_byte = 1 / *rate;
    fields.end();
  }
  void read_costs(const LocatedJson& json) {
    JsonFields costs(json, "costs", kOperation);
    if (const LocatedJson* cost = costs.take("between_hosts"))
      read_cost(*cost, "costs.between_hosts", network_.between);
    if (const LocatedJson* cost = costs.take("within_hosts"))
      read_cost(*cost, "costs.within_hosts", network_.within);
    if (const auto us = costs.number("receive_us", 0, kTimeMax_us)) network_.receive_s = 1e-6 * *us;
    if (const auto rate = costs.number("copy_bytes_per_s", 1, kRateMax))
      network_.copy_s_per_byte = 1 / *rate;
    if (const auto rate = costs.number("add_bytes_per_s", 1, kRateMax))
      network_.add_s_per_byte = 1 / *rate;
    costs.end();
  }

  Network network_;
  std::map<std::string, int> nodes_;
};

/// Nine digits: what is read and written again stays the same.
double rounded(double value) {
  return std::stod(fmt::format("{:.9g}", value));
}

LocatedJson parse_description(std::string_view text) {
  if (text.size() > kNetworkTextMax)
    throw Error(ErrorCode::invalid_argument, "network", "the description is longer than 64 MiB");
  return parse_located_json(text, kOperation);
}

Network read_network(std::string_view text, bool is_yaml, int ranks) {
  if (is_yaml) return network_of_astra_sim(text);
  const LocatedJson json = parse_description(text);
  return is_of_taccl(json) ? network_of_taccl(json, ranks) : NetworkReader().read(json);
}

}  // namespace

Network parse_network(std::string_view text) {
  return NetworkReader().read(parse_description(text));
}

std::string text_of(const Network& network) {
  using Json = nlohmann::ordered_json;
  const auto us = [](double seconds) { return rounded(1e6 * seconds); };
  Json json;
  for (const char* list : {"hosts", "switches", "links"}) json[list] = Json::array();
  for (const NetworkHost& host : network.hosts)
    json["hosts"].push_back({{"name", host.name}, {"ranks", host.ranks}});
  for (const std::string& name : network.switches) json["switches"].push_back({{"name", name}});
  for (const NetworkLink& link : network.links) {
    Json entry{{"between", {network.name_of(link.ends[0]), network.name_of(link.ends[1])}}};
    if (link.s_per_byte > 0) entry["rate_mbps"] = rounded(kBitsPerByte / (1e6 * link.s_per_byte));
    if (link.latency_s > 0) entry["latency_us"] = us(link.latency_s);
    if (link.buffer_ms != 50) entry["buffer_ms"] = link.buffer_ms;
    if (link.bucket_kib != 32) entry["bucket_kib"] = link.bucket_kib;
    json["links"].push_back(entry);
  }
  Json& costs = json["costs"];
  costs["between_hosts"] = {{"latency_us", us(network.between.latency_s)},
                            {"overhead_us", us(network.between.overhead_s)}};
  costs["within_hosts"] = {{"latency_us", us(network.within.latency_s)},
                           {"overhead_us", us(network.within.overhead_s)}};
  if (network.within.s_per_byte > 0)
    costs["within_hosts"]["bytes_per_s"] = rounded(1 / network.within.s_per_byte);
  if (network.receive_s > 0) costs["receive_us"] = us(network.receive_s);
  if (network.copy_s_per_byte > 0) costs["copy_bytes_per_s"] = rounded(1 / network.copy_s_per_byte);
  if (network.add_s_per_byte > 0) costs["add_bytes_per_s"] = rounded(1 / network.add_s_per_byte);
  return json.dump(1) + "\n";
}

Network find_network(const std::string& words, int ranks) {
  const bool is_yaml = words.ends_with(".yml") || words.ends_with(".yaml");
  const bool is_file = words.find('/') != words.npos || words.ends_with(".json") || is_yaml;
  if (!is_file) return network_of_template(words, ranks);
  const std::string text = read_text_file(words, kNetworkTextMax, kOperation,
                                          "name a file, or a template: flat, racks:32x16:uplink=4");
  Network network = read_network(text, is_yaml, ranks);
  if (ranks != 0 && network.ranks() != ranks)
    throw Error(ErrorCode::invalid_argument, "network",
                fmt::format("{} has {} ranks, not {}", words, network.ranks(), ranks),
                "leave -n out: the description says where the ranks are");
  return network;
}

}  // namespace ropewalk
