#include "transports/ucx/resources.h"

#include "transports/ucx/library.h"

namespace ropewalk::ucx {
namespace {

Reach reach_of(uct_device_type_t type) {
  switch (type) {
    case UCT_DEVICE_TYPE_SELF:
      return Reach::self;
    case UCT_DEVICE_TYPE_SHM:
      return Reach::host;
    case UCT_DEVICE_TYPE_ACC:
      return Reach::accelerator;
    default:
      return Reach::network;
  }
}

void add_resources(uct_component_h component, const char* domain, std::vector<Resource>& found) {
  uct_md_config_t* config = nullptr;
  if (lib().uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h opened = nullptr;
  const ucs_status_t status = lib().uct_md_open(component, domain, config, &opened);
  lib().uct_config_release(config);
  if (status != UCS_OK) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (lib().uct_md_query_tl_resources(opened, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i)
      found.push_back(
          {resources[i].tl_name, resources[i].dev_name, reach_of(resources[i].dev_type)});
    lib().uct_release_tl_resource_list(resources);
  }
  lib().uct_md_close(opened);
}

void add_resources(uct_component_h component, std::vector<Resource>& found) {
  uct_component_attr_t attributes{};
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
  if (lib().uct_component_query(component, &attributes) != UCS_OK) return;
  std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
  attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
  attributes.md_resources = domains.data();
  if (lib().uct_component_query(component, &attributes) != UCS_OK) return;
  for (const uct_md_resource_desc_t& domain : domains)
    add_resources(component, domain.md_name, found);
}

}  // namespace

std::vector<Resource> find_resources() {
  std::vector<Resource> found;
  uct_component_h* components = nullptr;
  unsigned count = 0;
  if (lib().uct_query_components(&components, &count) != UCS_OK) return found;
  for (unsigned i = 0; i < count; ++i) add_resources(components[i], found);
  lib().uct_release_component_list(components);
  return found;
}

std::string version() {
  return lib().ucp_get_version_string();
}

}  // namespace ropewalk::ucx
