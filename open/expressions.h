/*
expressions.h -- the expressions of several parts that pattern.h reads, as tokenizer.json files have
them. tokenizer_steps.cpp knows them by their text, gguf_splits.h by the name of a family.
*/
#ifndef EXPRESSIONS_H
#define EXPRESSIONS_H

// DeepSeek V3; the line ends stand in it as they are
inline constexpr const char* EXPRESSION_DEEPSEEK_V3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

// words of capital letters, then small ones; `behind`: what belongs to them
#define CASED_WORDS(behind, digits) \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*" \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" behind \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+" \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" behind \
    "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

// Mistral's Tekken
inline constexpr const char* EXPRESSION_TEKKEN = CASED_WORDS("", "\\p{N}");
// gpt-oss, whose vocabulary is o200k
inline constexpr const char* EXPRESSION_O200K =
    CASED_WORDS("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}");

// Qwen 3.5: marks are of words
inline constexpr const char* EXPRESSION_QWEN3_5 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

#endif // EXPRESSIONS_H
