#include "transports/ucx/resources.h"

#include <algorithm>
#include <span>

#include "transports/ucx/wires.h"

namespace ropewalk::ucx {
namespace {

std::vector<uct_md_resource_desc_t> domains_of(uct_component_h component) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (lib().uct_component_query(component, &attributes) != UCS_OK) return {};
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (lib().uct_component_query(component, &attributes) != UCS_OK) return {};
  return domains;
}

}  // namespace

DomainHandle Domain::open() const {
  uct_md_config_t* config = nullptr;
  if (lib().uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return nullptr;
  uct_md_h opened = nullptr;
  const ucs_status_t status = lib().uct_md_open(component, name.c_str(), config, &opened);
  lib().uct_config_release(config);
  return DomainHandle(status == UCS_OK ? opened : nullptr);
}

std::vector<Domain> find_domains() {
  std::vector<Domain> found;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (lib().uct_query_components(&components, &count) != UCS_OK) return found;
  for (const uct_component_h component : std::span(components, count))
    for (const uct_md_resource_desc_t& domain : domains_of(component))
      found.push_back({component, domain.md_name});
  lib().uct_release_component_list(components);
  return found;
}

std::vector<Resource> find_resources(std::string_view only) {
  std::vector<Resource> found;
  for (const Domain& domain : find_domains()) {
    if (!only.empty() && domain.name != only) continue;
    const DomainHandle opened = domain.open();
    uct_tl_resource_desc_t* resources = nullptr;
    unsigned count = 0;
    if (!opened || lib().uct_md_query_tl_resources(opened.get(), &resources, &count) != UCS_OK)
      continue;
    for (const uct_tl_resource_desc_t& resource : std::span(resources, count))
      found.push_back({resource.tl_name, resource.dev_name, resource.dev_type});
    lib().uct_release_tl_resource_list(resources);
  }
  return found;
}

bool uses_tcp(const Config& config) {
  if (!allows_transport(config.wires(), "tcp")) return false;
  const std::string devices = config.devices();
  return std::ranges::any_of(find_resources("tcp"), [&devices](const Resource& resource) {
    return allows_device(devices, resource.device);
  });
}

}  // namespace ropewalk::ucx
