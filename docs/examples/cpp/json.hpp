// JSON, as much of it as a driver needs: values, a reader that says what is wrong, and a writer on one line.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace json {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Value;
using Array = std::vector<Value>;
using Object = std::vector<std::pair<std::string, Value>>;  // in the order in which it was written

class Value {
public:
    Value() = default;
    Value(std::nullptr_t) {}
    Value(bool value) : held(value) {}
    Value(int value) : held(std::int64_t{value}) {}
    Value(std::int64_t value) : held(value) {}
    Value(double value) : held(value) {}
    Value(const char* value) : held(std::string(value)) {}
    Value(std::string value) : held(std::move(value)) {}
    Value(Array value) : held(std::move(value)) {}
    Value(Object value) : held(std::move(value)) {}

    bool is_null() const { return std::holds_alternative<std::monostate>(held); }
    bool is_string() const { return std::holds_alternative<std::string>(held); }
    bool is_integer() const { return std::holds_alternative<std::int64_t>(held); }
    std::int64_t integer() const { return get<std::int64_t>("a whole number"); }
    bool boolean() const { return get<bool>("true or false"); }
    const std::string& string() const { return get<std::string>("text"); }
    const Array& array() const { return get<Array>("a list"); }
    const Object& object() const { return get<Object>("an object"); }
    double number() const { return is_integer() ? static_cast<double>(integer()) : get<double>("a number"); }

    const Value* find(const std::string& key) const {
        for (const auto& [name, value] : object())
            if (name == key) return &value;
        return nullptr;
    }

    const Value& at(const std::string& key) const {
        if (const Value* found = find(key)) return *found;
        throw Error(key + ": missing");
    }

    std::string text() const {
        std::string out;
        write(out);
        return out;
    }

private:
    template <class T>
    const T& get(const char* expected) const {
        if (const T* value = std::get_if<T>(&held)) return *value;
        throw Error(std::string("expected ") + expected + ", this is " + text().substr(0, 60));
    }

    void write(std::string& out) const {
        if (is_null()) out += "null";
        else if (const bool* flag = std::get_if<bool>(&held)) out += *flag ? "true" : "false";
        else if (is_integer()) out += std::to_string(integer());
        else if (const double* real = std::get_if<double>(&held)) out += std::to_string(*real);
        else if (is_string()) write(string(), out);
        else if (const Array* items = std::get_if<Array>(&held)) {
            out += '[';
            for (const Value& one : *items) {
                if (&one != &items->front()) out += ',';
                one.write(out);
            }
            out += ']';
        } else {
            out += '{';
            for (const auto& entry : object()) {
                if (&entry != &object().front()) out += ',';
                write(entry.first, out);
                out += ':';
                entry.second.write(out);
            }
            out += '}';
        }
    }

    static void write(const std::string& text, std::string& out) {
        out += '"';
        for (unsigned char c : text) {
            if (c == '"' || c == '\\') {
                out += '\\';
                out += static_cast<char>(c);
            } else if (c < 0x20) {
                char escape[8];
                std::snprintf(escape, sizeof escape, "\\u%04x", c);
                out += escape;
            } else out += static_cast<char>(c);
        }
        out += '"';
    }

    std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> held;
};

class Reader {
public:
    explicit Reader(const std::string& text) : at(text.data()), end(at + text.size()) {}

    Value all() {
        Value found = value();
        space();
        if (at != end) fail("more behind the value");
        return found;
    }

private:
    [[noreturn]] void fail(const std::string& why) { throw Error("no JSON: " + why); }

    void space() {
        while (at != end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) ++at;
    }

    char peek() {
        space();
        if (at == end) fail("it ends too early");
        return *at;
    }

    bool take(char c) {
        if (peek() != c) return false;
        ++at;
        return true;
    }

    void expect(char c) {
        if (!take(c)) fail(std::string("expected ") + c);
    }

    bool word(const std::string& text) {
        if (static_cast<std::size_t>(end - at) < text.size() || std::string(at, text.size()) != text) return false;
        at += text.size();
        return true;
    }

    Value value() {
        switch (peek()) {
            case '{': return object();
            case '[': return array();
            case '"': return string();
            default: break;
        }
        if (word("null")) return nullptr;
        if (word("true")) return true;
        if (word("false")) return false;
        return number();
    }

    Value object() {
        Object found;
        expect('{');
        if (take('}')) return found;
        do {
            if (peek() != '"') fail("expected a key");
            std::string key = string();
            expect(':');
            found.emplace_back(std::move(key), value());
        } while (take(','));
        expect('}');
        return found;
    }

    Value array() {
        Array found;
        expect('[');
        if (take(']')) return found;
        do found.push_back(value());
        while (take(','));
        expect(']');
        return found;
    }

    Value number() {
        const char* from = at;
        bool whole = true;
        if (at != end && *at == '-') ++at;
        while (at != end && (std::isdigit(static_cast<unsigned char>(*at)) || std::string(".eE+-").find(*at) != std::string::npos))
            whole &= std::isdigit(static_cast<unsigned char>(*at++)) != 0;
        const std::string digits(from, at);
        try {
            std::size_t used = 0;
            Value found = whole ? Value(std::int64_t{std::stoll(digits, &used)}) : Value(std::stod(digits, &used));
            if (used == digits.size()) return found;
        } catch (const std::logic_error&) {
        }
        fail("expected a value");
    }

    std::string string() {
        std::string found;
        expect('"');
        for (;;) {
            if (at == end) fail("a text does not end");
            const char c = *at++;
            if (c == '"') return found;
            if (c != '\\') {
                found += c;
                continue;
            }
            if (at == end) fail("a text does not end");
            switch (const char escaped = *at++) {
                case 'b': found += '\b'; break;
                case 'f': found += '\f'; break;
                case 'n': found += '\n'; break;
                case 'r': found += '\r'; break;
                case 't': found += '\t'; break;
                case 'u': utf8(unicode(), found); break;
                default: found += escaped;
            }
        }
    }

    std::uint32_t unicode() {
        std::uint32_t code = hex();
        if (code >= 0xD800 && code < 0xDC00 && word("\\u")) code = 0x10000 + ((code - 0xD800) << 10) + (hex() - 0xDC00);
        return code;
    }

    std::uint32_t hex() {
        if (end - at < 4) fail("an escape is too short");
        const std::string digits(at, 4);
        at += 4;
        try {
            return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
        } catch (const std::logic_error&) {
            fail("an escape has no number");
        }
    }

    static void utf8(std::uint32_t code, std::string& out) {
        if (code < 0x80) out += static_cast<char>(code);
        else if (code < 0x800) (out += static_cast<char>(0xC0 | code >> 6)) += static_cast<char>(0x80 | (code & 0x3F));
        else {
            if (code < 0x10000) out += static_cast<char>(0xE0 | code >> 12);
            else (out += static_cast<char>(0xF0 | code >> 18)) += static_cast<char>(0x80 | (code >> 12 & 0x3F));
            (out += static_cast<char>(0x80 | (code >> 6 & 0x3F))) += static_cast<char>(0x80 | (code & 0x3F));
        }
    }

    const char* at;
    const char* end;
};

inline Value read(const std::string& text) { return Reader(text).all(); }

}  // namespace json
