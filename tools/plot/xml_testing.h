// Whether text is well-formed XML, of the part of it that plots use.
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace ropewalk::tools {

/// Empty where it is: each element ends, in order, there is one around all, attributes are quoted,
/// and "&" begins one of XML's entities.
inline std::string why_not_xml(const std::string& xml) {
  static const std::regex kTag(R"(<(/?)([a-z]+)((?: [a-zA-Z0-9-]+="[^"<]*")*)(/?)>)");
  static const std::regex kStray(R"(&(?!(amp|lt|gt|quot|apos);)|<|>)");
  std::vector<std::string> open;
  size_t end = 0;
  bool has_root = false;
  for (std::sregex_iterator tag(xml.begin(), xml.end(), kTag), last; tag != last; ++tag) {
    const auto begin = static_cast<size_t>(tag->position());
    const std::string between = xml.substr(end, begin - end);
    if (std::regex_search(between, kStray)) return "stray in \"" + between + "\"";
    const std::string attributes = (*tag)[3].str(), name = (*tag)[2].str();
    if (std::regex_search(attributes, std::regex("&(?!(amp|lt|gt|quot|apos);)")))
      return "stray in" + attributes;
    if ((*tag)[1].length() > 0) {
      if (open.empty() || open.back() != name) return "</" + name + "> ends nothing";
      open.pop_back();
    } else {
      if (open.empty() && has_root) return "<" + name + "> follows the end";
      has_root = true;
      if ((*tag)[4].length() == 0) open.push_back(name);
    }
    end = begin + static_cast<size_t>(tag->length());
  }
  if (!open.empty()) return "<" + open.back() + "> does not end";
  return xml.find_first_not_of(" \n", end) == xml.npos && has_root ? "" : "text around it";
}

}  // namespace ropewalk::tools
