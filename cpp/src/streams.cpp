#include "ringback/streams.hpp"

#include <utility>

namespace ringback {

std::string to_string(const StreamKey& key) {
    if (const auto* number = std::get_if<std::int64_t>(&key)) return std::to_string(*number);
    return "'" + std::get<std::string>(key) + "'";
}

StreamTable::StreamTable(std::size_t capacity)
    : capacity_(capacity),
      pool_(std::make_unique<std::pmr::unsynchronized_pool_resource>()),
      nodes_(pool_.get()),
      dormant_(pool_.get()) {}

StreamTable::Node** StreamTable::direct(const StreamKey& key) noexcept {
    const auto* const number = std::get_if<std::int64_t>(&key);
    return number != nullptr && *number >= 0 && *number < kDirect ? &direct_[static_cast<std::size_t>(*number)]
                                                                  : nullptr;
}

StreamTable::Node* StreamTable::find(const StreamKey& key) {
    if (Node** const place = direct(key)) return *place;
    const auto found = nodes_.find(key);
    return found == nodes_.end() ? nullptr : &*found;
}

StreamTable::Node* StreamTable::open(const StreamKey& key, std::uint32_t episode) {
    Node& node = *nodes_.try_emplace(key).first;
    node.second.state = State::open;
    node.second.episode = episode;
    if (Node** const place = direct(key)) *place = &node;
    return &node;
}

void StreamTable::sleep(Node* node, std::int64_t next_t, std::int64_t unit) {
    node->second.state = State::dormant;
    node->second.episode = kNoEpisode;
    node->second.next_t = next_t;
    node->second.unit = unit;
    node->second.place = dormant_.insert(dormant_.end(), node);
}

void StreamTable::forget_surplus() {
    while (dormant_.size() > capacity_) forget(dormant_.front());
}

void StreamTable::wake(Node* node, std::uint32_t episode) {
    dormant_.erase(node->second.place);
    node->second.state = State::open;
    node->second.episode = episode;
}

bool StreamTable::finish(Node* node) {
    if (std::holds_alternative<std::int64_t>(node->first)) {
        forget(node);
        return false;
    }
    node->second.state = State::finished;
    return true;
}

void StreamTable::forget(Node* node) {
    if (node->second.state == State::dormant) dormant_.erase(node->second.place);
    if (Node** const place = direct(node->first)) *place = nullptr;
    nodes_.erase(nodes_.find(node->first));
}

}  // namespace ringback
