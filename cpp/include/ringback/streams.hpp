#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <variant>

namespace ringback {

// A stream is whoever writes consecutive steps: a number (a sub-environment) or a name (an episode that comes in
// chunks).
using StreamKey = std::variant<std::int64_t, std::string>;

std::string to_string(const StreamKey& key);

inline constexpr std::uint32_t kNoEpisode = 0xffffffffU;

// What is known of the streams: which episode each has open, and how dormant ones go on.
//
//   open      its episode takes more steps
//   dormant   its episode is open, but every step of it is evicted: only the index of the next step is remembered
//   finished  named streams only: the episode has ended and some step of it lives; a chunk that comes again is refused
//
// A numbered stream is forgotten when its episode ends, a named one when the last step of its episode is evicted. At
// most `capacity` dormant streams are remembered; the one dormant for longest is forgotten first.
//
// Costs: O(1). Nodes are recycled, so nothing is allocated once warm (long names apart).
// Threads: const methods may run side by side, anything else needs exclusive access.
class StreamTable {
  public:
    enum class State : std::uint8_t { open, dormant, finished };

    struct Stream;
    using Node = std::pair<const StreamKey, Stream>;  // its address stays the same for its life
    using Dormant = std::pmr::list<Node*>;

    struct Stream {
        State state = State::open;
        std::uint32_t episode = kNoEpisode;  // open and finished: the episode's slot
        std::int64_t next_t = 0;             // dormant: the index of its next step
        std::int64_t unit = 0;               // dormant: the unit of a split that its next step belongs to
        Dormant::iterator place{};           // dormant: its place in the order of falling asleep
    };

    explicit StreamTable(std::size_t capacity);

    Node* find(const StreamKey& key);

    Node* open(const StreamKey& key, std::uint32_t episode);         // a stream that is not in the table
    void sleep(Node* node, std::int64_t next_t, std::int64_t unit);  // open → dormant
    void wake(Node* node, std::uint32_t episode);                    // dormant → open
    // The episode has ended: forgets a numbered stream (answers false: the node is gone), keeps a named one as
    // finished.
    bool finish(Node* node);
    void forget(Node* node);
    void forget_surplus();  // the oldest dormant streams, down to `capacity`

    std::size_t size() const noexcept { return nodes_.size(); }
    const Dormant& dormant() const noexcept { return dormant_; }  // oldest first

  private:
    // The commonest numbers, those of a vector environment, are looked up directly.
    static constexpr std::int64_t kDirect = 64;
    Node** direct(const StreamKey& key) noexcept;

    std::size_t capacity_;
    std::array<Node*, kDirect> direct_{};
    std::unique_ptr<std::pmr::unsynchronized_pool_resource> pool_;
    std::pmr::unordered_map<StreamKey, Stream> nodes_;
    Dormant dormant_;
};

}  // namespace ringback
