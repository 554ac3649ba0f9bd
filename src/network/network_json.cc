// The JSON format: docs/network.md, docs/network.schema.json.
#include <fmt/format.h>

#include <algorithm>
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
constexpr double kRateMax = 1e15;  // of costs, in bytes a second
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
      host_lines_.push_back(line);
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
    check(top.line_of("hosts"));
    return std::move(network_);
  }

 private:
  static constexpr double kTimeMax_us = 1e9, kNetlabMax_ms = 10'000;

  template <class Read>
  static void read_list(const LocatedJson& json, const std::string& name, const Read& read) {
    size_t index = 0;
    for (const LocatedJson& item : array_of(json, name, kOperation)) {
      JsonFields fields(item, fmt::format("{}[{}]", name, index++), kOperation);
      read(fields, item.line);
      fields.end();
    }
  }
  void check(int line) const {
    int64_t ranks = 0;
    for (const NetworkHost& host : network_.hosts) ranks += host.ranks;
    if (ranks > kNetworkRanksMax)
      refuse_at(line, "hosts",
                fmt::format("have {} ranks; at most {} are possible", ranks, kNetworkRanksMax));
    if (const auto apart = hosts_apart(network_))
      refuse_at(host_lines_[static_cast<size_t>(apart->first)],
                fmt::format("hosts[{}]", apart->first),
                fmt::format("is {}, from where there is no way to host {}: a link is missing",
                            network_.name_of(apart->first), network_.name_of(apart->second)));
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
    link.latency_s = 1e-6 * fields.number("latency_us", 0, kTimeMax_us).value_or(0);
    link.delay_ms = fields.number("delay_ms", 0, kNetlabMax_ms).value_or(0);
    link.buffer_ms = fields.number("buffer_ms", 0.1, kNetlabMax_ms).value_or(50);
    link.bucket_kib = fields.number("bucket_kib", 2, 1024).value_or(32);
    link.jitter_ms = fields.number("jitter_ms", 0, kNetlabMax_ms).value_or(0);
    link.loss_percent = fields.number("loss_percent", 0, 100).value_or(0);
    link.reorder_percent = fields.number("reorder_percent", 0, 100).value_or(0);
    network_.links.push_back(link);
  }
  static bool read_seconds(JsonFields& fields, const char* name, double& seconds) {
    const auto us = fields.number(name, 0, kTimeMax_us);
    if (us) seconds = 1e-6 * *us;
    return us.has_value();
  }
  static bool read_rate(JsonFields& fields, const char* name, double& s_per_byte) {
    const auto rate = fields.number(name, 1, kRateMax);
    if (rate) s_per_byte = 1 / *rate;
    return rate.has_value();
  }
  void read_costs(const LocatedJson& json) {
    JsonFields costs(json, "costs", kOperation);
    GivenCosts& given = network_.given;
    if (const LocatedJson* cost = costs.take("between_hosts")) {
      JsonFields fields(*cost, "costs.between_hosts", kOperation);
      given.between_latency = read_seconds(fields, "latency_us", network_.between.latency_s);
      given.between_overhead = read_seconds(fields, "overhead_us", network_.between.overhead_s);
      fields.end();
    }
    if (const LocatedJson* cost = costs.take("within_hosts")) {
      JsonFields fields(*cost, "costs.within_hosts", kOperation);
      given.within_latency = read_seconds(fields, "latency_us", network_.within.latency_s);
      given.within_overhead = read_seconds(fields, "overhead_us", network_.within.overhead_s);
      given.within_rate = read_rate(fields, "bytes_per_s", network_.within.s_per_byte);
      fields.end();
    }
    given.receive = read_seconds(costs, "receive_us", network_.receive_s);
    given.copy = read_rate(costs, "copy_bytes_per_s", network_.copy_s_per_byte);
    given.add = read_rate(costs, "add_bytes_per_s", network_.add_s_per_byte);
    costs.end();
  }

  Network network_;
  std::map<std::string, int> nodes_;
  std::vector<int> host_lines_;
};

/// Nine digits: what is read and written again stays the same.
double rounded(double value) {
  return std::stod(fmt::format("{:.9g}", value));
}

using Json = nlohmann::ordered_json;

/// Those that are given, or not as usual.
Json costs_json(const Network& network) {
  const Network usual;
  const GivenCosts& given = network.given;
  Json costs;
  const auto add_us = [](Json& json, const char* name, bool is_given, double s, double usual_s) {
    if (is_given || s != usual_s) json[name] = rounded(1e6 * s);
  };
  const auto add_rate = [](Json& json, const char* name, bool is_given, double s, double usual_s) {
    if (is_given || s != usual_s) json[name] = rounded(std::min(1 / s, kRateMax));
  };
  Json between, within;
  add_us(between, "latency_us", given.between_latency, network.between.latency_s,
         usual.between.latency_s);
  add_us(between, "overhead_us", given.between_overhead, network.between.overhead_s,
         usual.between.overhead_s);
  add_us(within, "latency_us", given.within_latency, network.within.latency_s,
         usual.within.latency_s);
  add_us(within, "overhead_us", given.within_overhead, network.within.overhead_s,
         usual.within.overhead_s);
  add_rate(within, "bytes_per_s", given.within_rate, network.within.s_per_byte,
           usual.within.s_per_byte);
  if (!between.empty()) costs["between_hosts"] = between;
  if (!within.empty()) costs["within_hosts"] = within;
  add_us(costs, "receive_us", given.receive, network.receive_s, usual.receive_s);
  if (network.copy_s_per_byte > 0)
    add_rate(costs, "copy_bytes_per_s", given.copy, network.copy_s_per_byte, 0);
  add_rate(costs, "add_bytes_per_s", given.add, network.add_s_per_byte, usual.add_s_per_byte);
  return costs;
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
  Json json;
  for (const char* list : {"hosts", "switches", "links"}) json[list] = Json::array();
  for (const NetworkHost& host : network.hosts)
    json["hosts"].push_back({{"name", host.name}, {"ranks", host.ranks}});
  for (const std::string& name : network.switches) json["switches"].push_back({{"name", name}});
  for (const NetworkLink& link : network.links) {
    Json entry{{"between", {network.name_of(link.ends[0]), network.name_of(link.ends[1])}}};
    if (link.s_per_byte > 0) entry["rate_mbps"] = rounded(kBitsPerByte / (1e6 * link.s_per_byte));
    if (link.latency_s > 0) entry["latency_us"] = rounded(1e6 * link.latency_s);
    if (link.buffer_ms != 50) entry["buffer_ms"] = link.buffer_ms;
    if (link.bucket_kib != 32) entry["bucket_kib"] = link.bucket_kib;
    if (link.delay_ms > 0) entry["delay_ms"] = link.delay_ms;
    if (link.jitter_ms > 0) entry["jitter_ms"] = link.jitter_ms;
    if (link.loss_percent > 0) entry["loss_percent"] = link.loss_percent;
    if (link.reorder_percent > 0) entry["reorder_percent"] = link.reorder_percent;
    json["links"].push_back(entry);
  }
  if (const Json costs = costs_json(network); !costs.empty()) json["costs"] = costs;
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
