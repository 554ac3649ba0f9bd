#include "network/imported.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "ropewalk/status.h"

namespace ropewalk {
namespace {

const std::string kImport = "network";
constexpr int64_t kImportedHostsMax = 1 << 16, kImportedLinksMax = 1 << 20;
constexpr double kAddsInNoTime = 1e-15;  // seconds a byte: the least that a description can say

[[noreturn]] void refuse_import(int line, const std::string& field, const std::string& why) {
  refuse_json(kImport, line, field, why);
}

int whole_number(double value, int line, const std::string& field) {
  if (value != std::floor(value)) refuse_import(line, field, "is no whole number");
  return static_cast<int>(value);
}

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

/// As much of YAML as such files have: "name: [ a, b ]  # why", one to a line.
class YamlLists {
 public:
  explicit YamlLists(std::string_view text) {
    for (std::string_view line : split(text, '\n')) {
      ++line_;
      line = without_blanks(line.substr(0, line.find('#')));
      if (!line.empty() && line != "---") add(line);
    }
  }

  struct List {
    int line = 0;
    std::vector<std::string_view> items;
  };
  List take(const std::string& name) {
    const auto found = lists_.find(name);
    if (found == lists_.end()) refuse_import(line_, name, "is missing");
    List list = std::move(found->second);
    lists_.erase(found);
    return list;
  }
  /// `dimensions` of them.
  std::vector<double> take_numbers(const std::string& name, size_t dimensions, double least,
                                   double most) {
    const List list = take(name);
    if (list.items.size() != dimensions)
      refuse_import(list.line, name,
                    fmt::format("has {} entries, topology {}", list.items.size(), dimensions));
    std::vector<double> numbers;
    for (size_t i = 0; i < list.items.size(); ++i) {
      const std::string field = fmt::format("{}[{}]", name, i);
      const auto number = parse_number<double>(list.items[i]);
      if (!number) refuse_import(list.line, field, "is no number");
      if (!(*number >= least && *number <= most))
        refuse_import(list.line, field,
                      fmt::format("is {:g}; {:g} to {:g} is possible", *number, least, most));
      if (name == "npus_count") whole_number(*number, list.line, field);
      numbers.push_back(*number);
    }
    return numbers;
  }
  void end() const {
    if (!lists_.empty())
      refuse_import(lists_.begin()->second.line, lists_.begin()->first,
                    "is no field that is known");
  }

 private:
  void add(std::string_view line) {
    const size_t colon = line.find(':');
    const std::string name(without_blanks(line.substr(0, colon)));
    if (colon == line.npos) refuse_import(line_, name, "has no value: write name: [ ... ]");
    std::string_view value = without_blanks(line.substr(colon + 1));
    if (value.starts_with('[') != value.ends_with(']') || value.empty())
      refuse_import(line_, name, "is no list on one line: write [ a, b ]");
    if (value.starts_with('[')) value = value.substr(1, value.size() - 2);
    List list{line_, {}};
    for (const std::string_view item : split(value, ','))
      list.items.push_back(without_blanks(item));
    if (!lists_.try_emplace(name, std::move(list)).second)
      refuse_import(line_, name, "is there twice");
  }

  int line_ = 0;
  std::map<std::string, List> lists_;
};

class AstraSimReader {
 public:
  explicit AstraSimReader(std::string_view text) : lists_(text) {
    const YamlLists::List topology = lists_.take("topology");
    const size_t count = topology.items.size();
    const auto npus = lists_.take_numbers("npus_count", count, 1, kImportedHostsMax);
    const auto rates = lists_.take_numbers("bandwidth", count, 1e-6, 1e5);
    const auto latencies = lists_.take_numbers("latency", count, 0, 1e12);
    lists_.end();
    double links = 0;
    for (size_t d = 0; d < count; ++d) {
      const std::string_view word = topology.items[d];
      const auto kind = std::ranges::find(kKinds, word);
      if (kind == std::end(kKinds))
        refuse_import(topology.line, fmt::format("topology[{}]", d),
                      fmt::format("is \"{}\"; Ring, FullyConnected or Switch is possible", word));
      dimensions_.push_back({static_cast<Kind>(kind - std::begin(kKinds)),
                             static_cast<int>(npus[d]),
                             1 / (rates[d] * static_cast<double>(1 << 30)), 1e-9 * latencies[d]});
      hosts_ *= dimensions_.back().size;
      hosts_ = std::min(hosts_, kImportedHostsMax + 1);
      links += dimensions_.back().kind == Kind::fully_connected ? (npus[d] - 1) / 2 : 1;
    }
    if (hosts_ > kImportedHostsMax || links * static_cast<double>(hosts_) > kImportedLinksMax)
      refuse_import(
          topology.line, "topology",
          fmt::format("has more than {} NPUs or {} links", kImportedHostsMax, kImportedLinksMax));
  }

  Network run() {
    network_.between = {.latency_s = 0, .overhead_s = 0, .s_per_byte = 0};
    network_.add_s_per_byte = kAddsInNoTime;
    network_.given = {.between_latency = true, .between_overhead = true, .add = true};
    for (int i = 0; i < hosts_; ++i) network_.hosts.push_back({fmt::format("n{}", i), 1});
    const bool is_star = dimensions_.size() == 1 && dimensions_[0].kind == Kind::star;
    if (is_star) {
      first_ = 0;
    } else {
      // Routers stand for their NPUs, as messages pass through those of others.
      first_ = static_cast<int>(hosts_);
      for (int i = 0; i < hosts_; ++i) join(i, add_switch(fmt::format("r{}", i)), {});
    }
    int64_t stride = 1;
    for (size_t d = 0; d < dimensions_.size(); ++d) {
      add_dimension(d, stride);
      stride *= dimensions_[d].size;
    }
    check_network(network_);
    return std::move(network_);
  }

 private:
  enum class Kind : uint8_t { ring, fully_connected, star };
  static constexpr std::string_view kKinds[] = {"Ring", "FullyConnected", "Switch"};
  struct Dimension {
    Kind kind = Kind::ring;
    int size = 1;
    double s_per_byte = 0, latency_s = 0;
  };

  int add_switch(std::string name) {
    network_.switches.push_back(std::move(name));
    return network_.node_count() - 1;
  }
  void join(int64_t a, int64_t b, const Dimension& dimension) {
    network_.links.push_back({{static_cast<int>(a), static_cast<int>(b)},
                              dimension.s_per_byte,
                              dimension.latency_s,
                              50,
                              32});
  }
  /// Joins those whose other coordinates are equal.
  void add_dimension(size_t number, int64_t stride) {
    const Dimension& dimension = dimensions_[number];
    const int64_t size = dimension.size;
    for (int64_t i = 0; i < hosts_; ++i) {
      const int64_t place = i / stride % size, begin = i - place * stride;
      if (dimension.kind == Kind::ring) {
        if (size > 2 || (size == 2 && place == 0))
          join(first_ + i, first_ + begin + (place + 1) % size * stride, dimension);
      } else if (dimension.kind == Kind::fully_connected) {
        for (int64_t other = place + 1; other < size; ++other)
          join(first_ + i, first_ + begin + other * stride, dimension);
      } else if (place == 0) {
        const int center = add_switch(fmt::format("d{}s{}", number, i));
        for (int64_t member = 0; member < size; ++member)
          join(first_ + i + member * stride, center, dimension);
      }
    }
  }

  YamlLists lists_;
  std::vector<Dimension> dimensions_;
  int64_t hosts_ = 1;
  int first_ = 0;  // node of the first NPU
  Network network_;
};

double required_number(JsonFields& fields, const std::string& name, double least, double most) {
  const int line = fields.line_of(name);
  const auto number = fields.number(name, least, most);
  if (!number) refuse_import(line, name, "is missing");
  return *number;
}

int required_count(JsonFields& fields, const std::string& name, int most) {
  const int line = fields.line_of(name);
  return whole_number(required_number(fields, name, 1, most), line, name);
}

/// "DGX2_1MB": 1.
double megabytes_of(const std::string& name, int line) {
  const size_t begin = name.rfind('_') + 1;
  const std::string_view text = std::string_view(name).substr(begin);
  if (text.ends_with("MB"))
    if (const auto count = parse_number<int>(text.substr(0, text.size() - 2));
        count && *count >= 1 && *count <= 1'000'000)
      return *count;
  refuse_import(line, "name",
                fmt::format("is \"{}\"; it must end with the size that the costs are of, such as "
                            "_1MB: those of KB are scaled",
                            name));
}

/// Ways of all GPUs of a node to each other, and how many bytes a second they carry.
double node_rate(JsonFields& fields, double megabytes, double least_us, double most_us) {
  for (const char* name : {"links", "betas", "invbws"})
    if (const LocatedJson* matrix = fields.take(name))
      refuse_import(matrix->line, name, "joins GPUs one by one; within a host all are alike here");
  const LocatedJson& list = fields.require("node_betas_list");
  const LocatedJson::Array& betas = array_of(list, "node_betas_list", kImport);
  const double* beta = betas.size() == 1 ? std::get_if<double>(&betas[0].value) : nullptr;
  if (beta == nullptr)
    refuse_import(list.line, "node_betas_list",
                  "is no list of one number; within a host all GPUs are alike here");
  if (!(*beta >= least_us && *beta <= most_us))
    refuse_import(list.line, "node_betas_list[0]",
                  fmt::format("is {:g}; {:g} to {:g} is possible", *beta, least_us, most_us));
  return 1e12 * megabytes / *beta;
}

}  // namespace

Network network_of_astra_sim(std::string_view text) {
  if (text.size() > kNetworkTextMax)
    throw Error(ErrorCode::invalid_argument, kImport, "the description is longer than 64 MiB");
  return AstraSimReader(text).run();
}

bool is_of_taccl(const LocatedJson& json) {
  return std::ranges::find(json.names, "gpus_per_node") != json.names.end();
}

Network network_of_taccl(const LocatedJson& json, int ranks) {
  constexpr double kAlphaMax_us = 1e9;
  JsonFields fields(json, "", kImport);
  const int name_line = fields.line_of("name");
  const double megabytes = megabytes_of(fields.word("name"), name_line);
  const double least_us = 8e-3 * megabytes, most_us = 8e9 * megabytes;  // 10^9 Mbit/s and 10^-3
  const int gpus_line = fields.line_of("gpus_per_node");
  const int gpus = required_count(fields, "gpus_per_node", kRanksPerHostMax);
  const int nics = required_count(fields, "nics_per_node", 64);
  Network network;
  network.within.overhead_s = network.between.overhead_s = 0;
  network.within.latency_s = 1e-6 * required_number(fields, "alpha", 0, kAlphaMax_us);
  network.between.latency_s = 1e-6 * required_number(fields, "remote_alpha", 0, kAlphaMax_us);
  const double remote_us = required_number(fields, "remote_beta", least_us, most_us);
  network.within.s_per_byte = 1 / node_rate(fields, megabytes, least_us, most_us);
  // Sums of the costs above.
  for (const char* name : {"node_invbws_list", "remote_invbw"}) fields.take(name);
  fields.end();
  if (ranks < 1 || ranks > kNetworkRanksMax || ranks % gpus != 0)
    refuse_import(
        gpus_line, "gpus_per_node",
        fmt::format("is {}; -n must be a multiple of it, as the file describes one node", gpus));
  network.given = {.between_latency = true,
                   .between_overhead = true,
                   .within_latency = true,
                   .within_overhead = true,
                   .within_rate = true};
  network.switches.emplace_back("s0");
  const int hosts = ranks / gpus;
  for (int host = 0; host < hosts; ++host)
    network.hosts.push_back({fmt::format("h{}", host), gpus});
  for (int host = 0; host < hosts; ++host)
    for (int nic = 0; nic < nics; ++nic)
      network.links.push_back({{host, hosts}, remote_us / (1e12 * megabytes), 0, 50, 32});
  check_network(network);
  return network;
}

}  // namespace ropewalk
