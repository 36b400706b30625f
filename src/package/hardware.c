/* hardware: board labels and mesh names. They describe Tenstorrent boards; a CPU only checks them.
 */
#include "package.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool tap_package_name_is_safe(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    return strchr("._-", name[0]) == NULL && strspn(name, letters) == strlen(name);
}

/* Up to three digits; *end behind them. 0 for none. */
static uint32_t small_number(const char *text, const char **end)
{
    size_t n = strspn(text, "0123456789");
    *end = text + n;
    return n == 0 || n > 3 ? 0 : (uint32_t)strtoul(text, NULL, 10);
}

/* One letter, digits, perhaps a letter for the board's revision, perhaps x and a number. */
uint32_t tap_hardware_chips(const char *label)
{
    static const struct {
        char letter;
        uint32_t number, chips;
    } boards[] = {{'p', 100, 1}, {'p', 150, 1}, {'n', 150, 1},
                  {'e', 150, 1}, {'p', 300, 2}, {'n', 300, 2}};
    char text[32];
    label += strspn(label, " \t\r\n");
    size_t n = strlen(label);
    while (n > 0 && strchr(" \t\r\n", label[n - 1]) != NULL)
        n--;
    if (n >= sizeof text)
        return 0;
    for (size_t i = 0; i < n; i++)
        text[i] = (char)tolower((unsigned char)label[i]);
    text[n] = '\0';
    if (n < 2)
        return 0;
    const char *end;
    uint32_t number = small_number(text + 1, &end), times = 1;
    if (*end >= 'a' && *end <= 'z' && *end != 'x')
        end++;
    if (*end == 'x') {
        times = small_number(end + 1, &end);
        if (times == 0)
            return 0;
    }
    for (size_t i = 0; *end == '\0' && i < sizeof boards / sizeof *boards; i++)
        if (boards[i].letter == text[0] && boards[i].number == number)
            return boards[i].chips * times;
    return 0;
}

/* "(r, c)" or "[r, c]". */
static bool literal(const char *mesh, uint32_t *rows, uint32_t *columns)
{
    const char *at = mesh + strspn(mesh, " ");
    char close = *at == '(' ? ')' : *at == '[' ? ']' : '\0';
    if (close == '\0')
        return false;
    at += 1 + strspn(at + 1, " ");
    *rows = small_number(at, &at);
    at += strspn(at, " ");
    if (*at != ',')
        return false;
    at += 1 + strspn(at + 1, " ");
    *columns = small_number(at, &at);
    at += strspn(at, " ");
    return *at == close && at[1 + strspn(at + 1, " ")] == '\0' && *rows > 0 && *columns > 0;
}

bool tap_mesh_shape(const char *mesh, uint32_t *rows, uint32_t *columns)
{
    static const struct {
        const char *names;
        uint32_t rows, columns;
    } meshes[] = {{" N150 P100 P150 ", 1, 1},
                  {" N300 P300 P150x2 ", 1, 2},
                  {" N150x4 P150x4 P300x2 ", 1, 4},
                  {" T3K P150x8 ", 1, 8},
                  {" QB2 ", 2, 2},
                  {" TG BH-Galaxy ", 4, 8}};
    char word[32];
    if (literal(mesh, rows, columns))
        return true;
    size_t n = strlen(mesh);
    if (n == 0 || n > sizeof word - 3 || strchr(mesh, ' ') != NULL)
        return false;
    word[0] = ' ';
    memcpy(word + 1, mesh, n);
    memcpy(word + 1 + n, " ", 2);
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++)
        if (strstr(meshes[i].names, word) != NULL) {
            *rows = meshes[i].rows;
            *columns = meshes[i].columns;
            return true;
        }
    return false;
}
