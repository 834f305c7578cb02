// `prefix_cache.hpp` under the suite: kvspec run --system 'cmd:./driver'. The protocol is in docs/protocol.md.
//
//   c++ -std=c++17 -O2 -o driver driver.cpp

#include <iostream>
#include <optional>

#include "json.hpp"
#include "prefix_cache.hpp"

using cache::PrefixCache;
using json::Array;
using json::Object;
using json::Value;

namespace {

// A message that cannot be understood, or comes at a wrong moment.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

const char* name_of(cache::Kind kind) {
    switch (kind) {
        case cache::Kind::invalid_argument: return "invalid_argument";
        case cache::Kind::logic_error: return "logic_error";
        case cache::Kind::out_of_pages: return "out_of_pages";
        default: return "out_of_range";
    }
}

Array list(const cache::Tokens& tokens) { return Array(tokens.begin(), tokens.end()); }

Array texts(std::initializer_list<const char*> words) { return Array(words.begin(), words.end()); }

cache::Tokens tokens(const Value& given) {
    cache::Tokens found;
    if (!given.is_null())
        for (const Value& one : given.array()) found.push_back(one.integer());
    return found;
}

// The verbs, and of each the arguments that it takes: a scenario that gives others is skipped.
const Object& verbs() {
    static const Object all{
        {"create", texts({"request", "tokens", "priority"})},
        {"resume", texts({"request"})},
        {"suspend", texts({"request"})},
        {"resize", texts({"request", "capacity", "history"})},
        {"commit", texts({"request", "tokens", "end"})},
        {"stop_committing", texts({"request"})},
        {"close", texts({"request"})},
        {"seed_prefix", texts({"tokens", "level", "priority"})},
        {"evict", texts({"level", "group", "pages"})},
        {"clear_reusable", texts({})},
        {"take_slots", texts({"level", "group", "count", "as"})},
        {"give_slots", texts({"as"})},
    };
    return all;
}

class Driver {
public:
    explicit Driver(cache::Bug bug) : bug(bug) {}

    // The answer to a line.
    Object answer(const std::string& line) {
        Value id;
        try {
            const Value message = json::read(line);
            if (const Value* given = message.find("id"); given && given->is_integer()) id = *given;
            message.at("id").integer();
            Object found{{"id", id}};
            for (auto& entry : said(message)) found.push_back(std::move(entry));
            return found;
        } catch (const cache::Refused& refused) {
            return {{"id", id}, {"error", name_of(refused.kind)}, {"text", refused.what()}};
        } catch (const Wrong& wrong) {
            return {{"id", id}, {"wrong", wrong.what()}};
        } catch (const json::Error& wrong) {
            return {{"id", id}, {"wrong", wrong.what()}};
        }
    }

private:
    Object said(const Value& message) {
        const std::string& kind = message.at("message").string();
        if (kind == "hello") return hello(message);
        if (!greeted) throw Wrong("expected hello as the first message");
        if (kind == "lacks") return {{"lacks", lacks(message.at("manager"))}};
        if (kind == "manager") return build(message.at("manager"));
        if (kind != "apply" && kind != "observe" && kind != "close") throw Wrong("there is no message " + kind);
        if (!manager) throw Wrong("there is no manager");
        if (kind == "apply") return {{"value", apply(message.at("verb").string(), message.at("arguments"))}};
        if (kind == "observe") return {{"observation", observation()}};
        manager.reset();
        return {};
    }

    Object hello(const Value& message) {
        if (message.at("protocol").integer() != 1) throw Wrong("version 1 of the protocol is spoken here");
        greeted = true;
        Array names;
        for (const auto& entry : verbs()) names.push_back(entry.first);
        return {
            {"protocol", 1},
            {"name", "prefix_cache.hpp"},
            {"capabilities", names},
            {"arguments", verbs()},
            {"unobserved", texts({"payloads", "order", "counters", "versions", "device", "staging"})},
            {"policies", Object{{"match", "block"}, {"partial_blocks", "none"}}},
            {"lacks", true},
        };
    }

    static Array lacks(const Value& config) {
        Array found;
        bool windows = false, sparse = false, states = false;
        for (const Value& layer : config.at("layers").array()) {
            windows |= !layer.at("sliding_window").is_null();
            states |= layer.at("kind").string() == "ssm";
            sparse |= layer.at("buffers").array().at(0).at("sparse").boolean();
        }
        if (windows) found.push_back("windows");
        if (sparse) found.push_back("sparse layers");
        if (states) found.push_back("states");
        if (config.at("levels").array().size() > 1) found.push_back("a host level");
        if (config.at("max_util_for_resume").number() < 1) found.push_back("max_util_for_resume");
        return found;
    }

    Object build(const Value& config) {
        const std::int64_t size = config.at("tokens_per_block").integer();
        const Value& level = config.at("levels").array().at(0);
        std::int64_t bytes = 0;
        for (const Value& layer : config.at("layers").array())
            for (const Value& buffer : layer.at("buffers").array()) {
                const Value& own = buffer.at("tokens_per_block");
                bytes += buffer.at("bytes").integer() * (own.is_null() ? 1 : size / own.integer());
            }
        slots = level.at("slots").is_null() ? level.at("bytes").integer() / bytes : level.at("slots").integer();
        group = config.at("layers").array().at(0).at("name").string();  // all layers are alike, and form one group
        manager.emplace(size, slots, bug);
        return {};
    }

    Value apply(const std::string& verb, const Value& given) {
        if (!std::any_of(verbs().begin(), verbs().end(), [&](const auto& entry) { return entry.first == verb; }))
            throw Wrong("there is no verb " + verb);
        auto request = [&]() -> const std::string& { return given.at("request").string(); };
        auto number = [&](const char* key) -> std::optional<std::int64_t> {
            const Value& found = given.at(key);
            return found.is_null() ? std::nullopt : std::optional(found.integer());
        };
        PrefixCache& cache = *manager;
        cache.begin();
        if (verb == "create") return cache.create(request(), tokens(given.at("tokens")), given.at("priority").integer());
        if (verb == "resume") return cache.resume(request());
        if (verb == "resize") {
            const auto capacity = number("capacity"), history = number("history");
            return cache.resize(request(), capacity ? &*capacity : nullptr, history ? &*history : nullptr);
        }
        if (verb == "suspend") cache.suspend(request());
        else if (verb == "commit") cache.commit(request(), tokens(given.at("tokens")), given.at("end").boolean());
        else if (verb == "stop_committing") cache.stop_committing(request());
        else if (verb == "close") cache.close(request());
        else if (verb == "clear_reusable") cache.clear_reusable();
        else if (verb == "give_slots") cache.give_slots(given.at("as").string());
        else {
            there(given);
            if (verb == "seed_prefix") cache.seed(tokens(given.at("tokens")), given.at("priority").integer());
            else if (verb == "evict") cache.evict(given.at("pages").integer());
            else {
                const auto count = given.at("count").is_string() ? std::nullopt : number("count");
                cache.take_slots(given.at("as").string(), count ? &*count : nullptr);
            }
        }
        return nullptr;
    }

    // Refuses a layer group and a level that there are not, in this order.
    void there(const Value& given) const {
        if (const Value* name = given.find("group"); name && !name->is_null() && name->string() != group)
            throw cache::Refused(cache::Kind::out_of_range, "no group " + name->string());
        if (given.at("level").string() != "gpu") throw cache::Refused(cache::Kind::invalid_argument, "there is the gpu alone");
    }

    Object observation() {
        Object requests;
        for (const auto& [name, one] : manager->requests) requests.emplace_back(name, seen(one));
        std::map<const cache::Page*, std::int64_t> numbers;
        Array pages, tree, evictable, events;
        for (const auto& [age, page] : manager->pages) {
            numbers.emplace(&page, static_cast<std::int64_t>(pages.size()));
            pages.push_back(seen(page));
        }
        for (const cache::Block* block : manager->tree()) tree.push_back(Object{{"tokens", list(manager->prefix(block))}});
        for (const cache::Page* page : manager->evictable()) evictable.push_back(numbers.at(page));
        for (const cache::Event& event : manager->events)
            events.push_back(Object{{event.stored ? "stored" : "removed", list(event.tokens)}});
        const Value free(static_cast<std::int64_t>(manager->free.size()));
        const Array fences(manager->free.size(), Object{});
        const Object pool{
            {"groups", Array{group}}, {"slots", slots}, {"free", free}, {"fences", fences}, {"evictable", evictable}};
        const Object nothing, counters{{"groups", nothing}};
        return {
            {"groups", Array{group}},
            {"requests", requests},
            {"pages", pages},
            {"tree", tree},
            {"pools", Object{{"gpu", Object{{group, pool}}}}},
            {"batches", nothing},
            {"lifetime", counters},
            {"since_reset", counters},
            {"copy_calls", nothing},
            {"events", events},
            {"labels", nothing},
            {"reads", nothing},
            {"streams", Object{{"exec", nothing}}},
        };
    }

    Object seen(const cache::Request& one) const {
        Object snapshots;
        if (!one.closed) {
            Array indices, levels, ready;
            for (const cache::Page* page : one.pages) {
                indices.push_back(one.active ? Value(page->slot) : Value(-1));
                levels.push_back(one.active ? Value("gpu") : Value());
                ready.push_back(one.active ? Value(Object{}) : Value());
            }
            const Object snapshot{{"indices", indices}, {"levels", levels}, {"eligible", 0}, {"ready", ready}, {"row", nullptr}, {"version", 0}};
            snapshots.emplace_back(group, Array{snapshot});
        }
        return {
            {"status", one.closed ? "closed" : one.active ? "active" : "suspended"},
            {"phase", "prefill"},
            {"capacity", one.capacity},
            {"history", one.history},
            {"committed", one.committed},
            {"row", nullptr},
            {"batch", nullptr},
            {"beam_width", 1},
            {"version", 0},
            {"acknowledged", nullptr},
            {"dirty", true},
            {"snapshots", snapshots},
        };
    }

    Object seen(const cache::Page& page) const {
        Array refs, owners;
        for (const std::string& name : page.users) refs.push_back(Object{{"request", name}, {"group", group}, {"block", page.block}});
        for (const std::string& name : page.active) owners.push_back(name);
        return {
            {"group", group},
            {"block", page.block},
            {"beam", 0},
            {"refs", refs},
            {"tokens", page.cached ? Value(list(manager->prefix(page.cached))) : Value()},
            {"level", "gpu"},
            {"slot", page.slot},
            {"status", !page.active.empty() ? "locked" : !page.users.empty() ? "held" : "droppable"},
            {"owners", owners},
            {"ready", Object{}},
            {"payload", nullptr},
        };
    }

    cache::Bug bug;
    bool greeted = false;
    std::optional<PrefixCache> manager;
    std::string group;
    std::int64_t slots = 0;
};

}  // namespace

int main(int count, char** words) {
    const std::map<std::string, cache::Bug> bugs{{"--bug=parent", cache::Bug::parent},
                                                 {"--bug=recent", cache::Bug::recent},
                                                 {"--bug=leak", cache::Bug::leak},
                                                 {"--bug=held", cache::Bug::held}};
    cache::Bug bug = cache::Bug::none;
    for (int at = 1; at < count; ++at) {
        const auto found = bugs.find(words[at]);
        if (found == bugs.end()) {
            std::cerr << words[at] << ": expected --bug=parent, recent, leak or held\n";
            return 2;
        }
        bug = found->second;
    }
    Driver driver(bug);
    for (std::string line; std::getline(std::cin, line);)
        if (!line.empty()) std::cout << Value(driver.answer(line)).text() << std::endl;
    return 0;
}
