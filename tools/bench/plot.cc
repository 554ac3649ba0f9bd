#include "tools/bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "ropewalk/status.h"

namespace ropewalk::tools {
namespace {

using BenchLine = nlohmann::ordered_json;

/// The fields of a line by which runs differ. The algorithm may change with the size.
constexpr const char* kRunFields[] = {"transport", "ranks", "dtype",   "op",
                                      "buffers",   "root",  "in_place"};

[[noreturn]] void refuse_saved(const std::string& where, const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "bench",
              fmt::format("--plot-beside {}: {}", printable(where), printable(why)),
              "name a file with what `ropewalk bench --json` has printed");
}

/// Null where it is none that can be drawn.
std::optional<double> amount_in(const BenchLine& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number()) return {};
  const auto value = found->get<double>();
  if (!std::isfinite(value) || value < 0) return {};
  return value;
}

std::string text_in(const BenchLine& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

void add_line(std::vector<BenchRun>& runs, const BenchLine& line, const std::string& where) {
  BenchRun::Point point;
  for (const auto& [name, value] :
       {std::pair("bytes", &point.bytes), std::pair("median_us", &point.median_us),
        std::pair("busbw_gbs", &point.busbw_gbs)}) {
    const auto number = amount_in(line, name);
    if (!number) refuse_saved(where, fmt::format("there is no {}", name));
    *value = *number;
  }
  std::vector<std::pair<std::string, std::string>> fields;
  for (const char* name : kRunFields) fields.emplace_back(name, text_in(line, name));
  auto run = std::ranges::find(runs, fields, &BenchRun::fields);
  if (run == runs.end()) run = runs.insert(runs.end(), BenchRun{std::move(fields), {}});
  run->points.push_back(point);
}

/// "shm, 2 ranks"; and of the other fields those by which it differs from `this_run`.
std::string name_of_run(const BenchRun& run, const BenchRun& this_run) {
  std::string name;
  for (size_t i = 0; i < run.fields.size(); ++i) {
    const auto& [field, value] = run.fields[i];
    if (field == "transport") name += value;
    if (field == "ranks") name += fmt::format(", {} ranks", value);
    if (i >= 2 && run.fields[i] != this_run.fields[i])
      name += field == "in_place" ? (value == "true" ? ", in place" : ", out of place")
                                  : fmt::format(", {}{}", field == "root" ? "root " : "", value);
  }
  return name;
}

/// Those that a logarithmic axis has.
std::vector<PlotPoint> points_of(const BenchRun& run, double BenchRun::Point::*value) {
  std::vector<PlotPoint> points;
  for (const BenchRun::Point& point : run.points)
    if (point.bytes > 0 && point.*value > 0) points.push_back({point.bytes, point.*value});
  return points;
}

std::string text_of_saved(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) refuse_saved(path, std::strerror(errno));
  return text;
}

}  // namespace

std::vector<BenchRun> parse_bench_runs(std::string_view text, const std::string& file,
                                       const std::string& collective) {
  std::vector<BenchRun> runs;
  int number = 0;
  for (const std::string_view words : split(text, '\n')) {
    ++number;
    if (words.find_first_not_of(" \t\r") == words.npos) continue;
    const std::string where = fmt::format("{}, line {}", file, number);
    const BenchLine line = BenchLine::parse(words, nullptr, false);
    if (!line.is_object()) refuse_saved(where, "it is no JSON object");
    if (const std::string kind = text_in(line, "collective"); kind != collective)
      refuse_saved(where, kind.empty() ? "there is no collective"
                                       : fmt::format("it is of {}, not of {}", kind, collective));
    add_line(runs, line, where);
  }
  if (runs.empty()) refuse_saved(file, "nothing is in it");
  for (BenchRun& run : runs) std::ranges::stable_sort(run.points, {}, &BenchRun::Point::bytes);
  return runs;
}

BenchPlot::BenchPlot(const BenchOptions& options)
    : options_(options), file_("bench", options.plot) {
  if (!options.plot_beside.empty())
    beside_ = parse_bench_runs(text_of_saved(options.plot_beside), options.plot_beside,
                               options.kind.name());
}

void BenchPlot::add(const BenchJob& job, const BenchResult& result) {
  lines_ += json_line(options_, job, result);
}

void BenchPlot::write() const {
  const std::string collective = options_.kind.name();
  const BenchRun run = parse_bench_runs(lines_, "this run", collective).front();
  LinePanel times{.title = "Time: median of the iterations, each that of the slowest rank",
                  .x = {"bytes of the vector", Scale::log2, size_tick},
                  .y = {"time", Scale::log10, time_tick}};
  LinePanel rates{.title = "Bus bandwidth, of the median",
                  .x = times.x,
                  .y = {"bus bandwidth", Scale::log10, rate_tick}};
  int style = 0;
  const auto add = [&](const std::string& name, const BenchRun& one) {
    times.series.push_back({name, points_of(one, &BenchRun::Point::median_us), style});
    rates.series.push_back({name, points_of(one, &BenchRun::Point::busbw_gbs), style++});
  };
  add("this run: " + name_of_run(run, run), run);
  const std::string saved = options_.plot_beside.substr(options_.plot_beside.rfind('/') + 1);
  for (const BenchRun& one : beside_) add(saved + ": " + name_of_run(one, run), one);
  file_.write(fmt::format("ropewalk bench {}: {}, {} buffers, {}", collective,
                          name_of(options_.type), options_.registered ? "registered" : "plain",
                          options_.in_place ? "in place" : "out of place"),
              {times, rates});
}

}  // namespace ropewalk::tools
