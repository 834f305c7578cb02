// A prefix cache of whole blocks on the GPU. It knows nothing of kvspec.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace cache {

using Tokens = std::vector<std::int64_t>;

enum class Kind { invalid_argument, logic_error, out_of_pages, out_of_range };

struct Refused : std::runtime_error {
    Refused(Kind kind, const std::string& text) : std::runtime_error(text), kind(kind) {}
    Kind kind;
};

// Mistakes that can be planted, to see that they are found.
enum class Bug { none, parent, recent, leak, held };

struct Block;

struct Page {
    std::int64_t slot, block, priority;
    std::int64_t age;              // pages count from 0, in the order in which they were made
    std::int64_t since = 0;        // the operation that unlocked it last, or made it
    Block* cached = nullptr;       // the block of the tree that it belongs to
    std::set<std::string> users;   // requests that keep it
    std::set<std::string> active;  // those of them that are active
};

// A block of the tree: `tokens` are its own.
struct Block {
    Block* parent;
    Tokens tokens;
    Page* page;
    std::vector<Block*> children;  // the older first
};

struct Request {
    std::int64_t priority = 0, capacity = 0, history = 0, committed = 0;
    bool active = false, closed = false;
    bool ended = false;     // nothing more is committed
    bool terminal = false;  // nor does it grow
    Tokens tokens;
    std::vector<Page*> pages;   // by block
    std::vector<Block*> path;   // the blocks of the tree that it has committed or matched
};

struct Event {
    bool stored;
    Tokens tokens;
};

class PrefixCache {
public:
    PrefixCache(std::int64_t tokens_per_block, std::int64_t slots, Bug bug) : size(tokens_per_block), bug(bug) {
        for (std::int64_t slot = slots; slot-- > 0;) free.push_back(slot);
    }

    // What can be seen.
    std::map<std::string, Request> requests;
    std::map<std::int64_t, Page> pages;  // by age
    std::vector<std::int64_t> free;
    std::vector<Event> events;  // of the last operation

    std::vector<const Block*> tree() const {
        std::vector<const Block*> found;
        for (const auto& one : blocks) found.push_back(one.get());
        return found;
    }

    Tokens prefix(const Block* block) const {
        if (block == nullptr) return {};
        Tokens found = prefix(block->parent);
        found.insert(found.end(), block->tokens.begin(), block->tokens.end());
        return found;
    }

    // The pages that no active request has, the one that leaves first before the others.
    std::vector<Page*> evictable() {
        std::vector<Page*> found;
        for (auto& [age, page] : pages)
            if (page.active.empty()) found.push_back(&page);
        std::sort(found.begin(), found.end(), [this](const Page* a, const Page* b) {
            if (a->priority != b->priority) return a->priority < b->priority;
            if (a->since != b->since) return bug == Bug::recent ? a->since > b->since : a->since < b->since;
            if (a->block != b->block) return a->block > b->block;
            return a->age < b->age;
        });
        return found;
    }

    void begin() {  // of each operation
        ++now;
        events.clear();
    }

    std::int64_t create(const std::string& name, const Tokens& tokens, std::int64_t priority) {
        check(tokens);
        if (auto known = requests.find(name); known != requests.end() && !known->second.closed)
            throw Refused(Kind::logic_error, "request " + name + " is there");
        Request made;
        made.priority = priority;
        while (Block* block = child(made.path.empty() ? nullptr : made.path.back(), part(tokens, made.path.size()))) {
            block->page->users.insert(name);
            made.path.push_back(block);
            made.pages.push_back(block->page);
        }
        const std::int64_t length = static_cast<std::int64_t>(made.path.size()) * size;
        made.tokens.assign(tokens.begin(), tokens.begin() + length);
        made.capacity = made.history = made.committed = length;
        requests[name] = made;
        return length;
    }

    bool resume(const std::string& name) {
        Request& one = live(name);
        if (one.active) throw Refused(Kind::logic_error, "request " + name + " is active");
        one.active = true;
        for (Page* page : one.pages) page->active.insert(name);
        return true;
    }

    void suspend(const std::string& name) {
        Request& one = running(live(name), name);
        one.active = false;
        for (Page* page : one.pages) unlock(*page, name);
    }

    bool resize(const std::string& name, const std::int64_t* capacity, const std::int64_t* history) {
        Request& one = live(name);
        const std::int64_t room = capacity ? *capacity : one.capacity, done = history ? *history : one.history;
        if (room < 0 || done < one.history || room < done)
            throw Refused(Kind::invalid_argument, name + ": capacity " + std::to_string(room) + ", history " + std::to_string(done));
        running(one, name);
        if (one.terminal && (room > one.capacity || done > one.history))
            throw Refused(Kind::logic_error, "request " + name + " has ended");
        const std::size_t count = static_cast<std::size_t>((room + size - 1) / size);
        if (count > one.pages.size() && !make_room(static_cast<std::int64_t>(count - one.pages.size()), {})) return false;
        for (; one.pages.size() > count; one.pages.pop_back()) let_go(*one.pages.back(), name);
        while (one.pages.size() < count) {
            Page& page = take(static_cast<std::int64_t>(one.pages.size()), one.priority);
            page.users.insert(name);
            page.active.insert(name);
            one.pages.push_back(&page);
        }
        one.capacity = room;
        one.history = done;
        return true;
    }

    void commit(const std::string& name, const Tokens& tokens, bool end) {
        Request& one = live(name);
        check(tokens);
        const std::int64_t total = one.committed + static_cast<std::int64_t>(tokens.size());
        if (total > one.capacity) throw Refused(Kind::invalid_argument, name + ": more tokens than its capacity");
        running(one, name);
        if (!tokens.empty() && one.ended) throw Refused(Kind::logic_error, "request " + name + " has ended its commits");
        one.tokens.insert(one.tokens.end(), tokens.begin(), tokens.end());
        one.committed = total;
        one.history = std::max(one.history, total);
        while (static_cast<std::int64_t>(one.path.size() + 1) * size <= total) commit_block(one, name);
        if (end) one.ended = one.terminal = true;
    }

    void stop_committing(const std::string& name) { live(name).ended = true; }

    void close(const std::string& name) {
        Request& one = known(name);
        if (one.closed) return;
        for (Page* page : one.pages) let_go(*page, name);
        one.active = false;
        one.closed = true;
        one.pages.clear();
        one.path.clear();
        one.tokens.clear();
    }

    void seed(const Tokens& tokens, std::int64_t priority) {
        check(tokens);
        std::vector<Block*> way;
        std::set<Page*> pinned;
        while (Block* block = child(way.empty() ? nullptr : way.back(), part(tokens, way.size()))) {
            way.push_back(block);
            pinned.insert(block->page);
        }
        const std::size_t count = tokens.size() / static_cast<std::size_t>(size);
        if (!make_room(static_cast<std::int64_t>(count - way.size()), pinned)) throw Refused(Kind::out_of_pages, "no room to seed");
        while (way.size() < count) {
            Page& page = take(static_cast<std::int64_t>(way.size()), priority);
            way.push_back(&enter(way.empty() ? nullptr : way.back(), part(tokens, way.size()), page));
        }
    }

    void evict(std::int64_t count) {
        if (count < 1) throw Refused(Kind::invalid_argument, "evict at least one page");
        if (!leave(count, {})) throw Refused(Kind::out_of_pages, "fewer pages can leave");
    }

    void clear_reusable() {
        while (Page* page = first({})) drop(*page->cached);
    }

    void take_slots(const std::string& label, const std::int64_t* asked) {
        const std::int64_t there = static_cast<std::int64_t>(free.size()), count = asked ? *asked : there;
        if (asked && count < 1) throw Refused(Kind::invalid_argument, "take at least one slot");
        if (taken.count(label)) throw Refused(Kind::logic_error, "slots " + label + " are taken");
        if (count > there) throw Refused(Kind::out_of_pages, std::to_string(there) + " slots are free");
        taken[label].assign(free.end() - count, free.end());
        free.resize(static_cast<std::size_t>(there - count));
    }

    void give_slots(const std::string& label) {
        auto found = taken.find(label);
        if (found == taken.end()) throw Refused(Kind::out_of_range, "no taken slots " + label);
        free.insert(free.end(), found->second.begin(), found->second.end());
        taken.erase(found);
    }

private:
    static void check(const Tokens& tokens) {
        if (std::any_of(tokens.begin(), tokens.end(), [](std::int64_t token) { return token < 0; }))
            throw Refused(Kind::invalid_argument, "a token is negative");
    }

    Request& known(const std::string& name) {
        auto found = requests.find(name);
        if (found == requests.end()) throw Refused(Kind::out_of_range, "no request " + name);
        return found->second;
    }

    Request& live(const std::string& name) {
        Request& one = known(name);
        if (one.closed) throw Refused(Kind::logic_error, "request " + name + " is closed");
        return one;
    }

    static Request& running(Request& one, const std::string& name) {
        if (!one.active) throw Refused(Kind::logic_error, "request " + name + " is suspended");
        return one;
    }

    Tokens part(const Tokens& tokens, std::size_t block) const {  // empty where there are fewer
        const std::size_t from = block * static_cast<std::size_t>(size), to = from + static_cast<std::size_t>(size);
        return to > tokens.size() ? Tokens{} : Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(to));
    }

    Block* child(const Block* parent, const Tokens& tokens) {
        for (const auto& one : blocks)
            if (one->tokens == tokens && (one->parent == parent || bug == Bug::parent)) return one.get();
        return nullptr;
    }

    Block& enter(Block* parent, const Tokens& tokens, Page& page) {
        blocks.push_back(std::make_unique<Block>(Block{parent, tokens, &page, {}}));
        Block& made = *blocks.back();
        if (parent) parent->children.push_back(&made);
        page.cached = &made;
        events.push_back({true, prefix(&made)});
        return made;
    }

    void commit_block(Request& one, const std::string& name) {
        const std::size_t number = one.path.size();
        Block* parent = number ? one.path.back() : nullptr;
        const Tokens tokens = part(one.tokens, number);
        Block* block = child(parent, tokens);
        if (block) {  // the tree's page takes the place of its own
            let_go(*one.pages[number], name);
            one.pages[number] = block->page;
            block->page->users.insert(name);
            block->page->active.insert(name);
        } else block = &enter(parent, tokens, *one.pages[number]);
        one.path.push_back(block);
    }

    Page& take(std::int64_t block, std::int64_t priority) {
        const std::int64_t slot = free.back();
        free.pop_back();
        Page& page = pages[ages];
        page = Page{slot, block, priority, ages, now, nullptr, {}, {}};
        ++ages;
        return page;
    }

    void unlock(Page& page, const std::string& name) {
        if (page.active.erase(name) && page.active.empty()) page.since = now;
    }

    void let_go(Page& page, const std::string& name) {
        unlock(page, name);
        page.users.erase(name);
        if (page.users.empty() && page.cached == nullptr && bug != Bug::leak) release(page);
    }

    void release(Page& page) {
        free.push_back(page.slot);
        pages.erase(page.age);
    }

    Page* first(const std::set<Page*>& pinned) {  // the first page that can leave
        for (Page* page : evictable())
            if ((page->users.empty() || bug == Bug::held) && page->cached && !pinned.count(page)) return page;
        return nullptr;
    }

    bool make_room(std::int64_t slots, const std::set<Page*>& pinned) {
        const std::int64_t short_of = slots - static_cast<std::int64_t>(free.size());
        return short_of <= 0 || leave(short_of, pinned);
    }

    // Drop pages in order until so many have left; nothing happens if fewer can.
    bool leave(std::int64_t count, const std::set<Page*>& pinned) {
        std::int64_t able = 0;
        for (Page* page : evictable()) able += (page->users.empty() || bug == Bug::held) && page->cached && !pinned.count(page);
        if (able < count) return false;
        for (std::int64_t left = 0; left < count;) {
            const std::size_t before = free.size();
            drop(*first(pinned)->cached);
            left += static_cast<std::int64_t>(free.size() - before);
        }
        return true;
    }

    void drop(Block& block) {  // with all below it, parents first
        std::vector<Block*> gone{&block};
        for (std::size_t next = 0; next < gone.size(); ++next)
            gone.insert(gone.begin() + static_cast<std::ptrdiff_t>(next) + 1, gone[next]->children.begin(), gone[next]->children.end());
        for (Block* one : gone) events.push_back({false, prefix(one)});
        if (block.parent) {
            auto& siblings = block.parent->children;
            siblings.erase(std::find(siblings.begin(), siblings.end(), &block));
        }
        for (Block* one : gone) {
            for (auto& [name, request] : requests) {
                request.pages.erase(std::remove(request.pages.begin(), request.pages.end(), one->page), request.pages.end());
                request.path.erase(std::remove(request.path.begin(), request.path.end(), one), request.path.end());
            }
            release(*one->page);
            blocks.erase(std::find_if(blocks.begin(), blocks.end(), [one](const auto& known) { return known.get() == one; }));
        }
    }

    std::int64_t size;
    Bug bug;
    std::vector<std::unique_ptr<Block>> blocks;  // the older first
    std::map<std::string, std::vector<std::int64_t>> taken;
    std::int64_t now = 0, ages = 0;
};

}  // namespace cache
