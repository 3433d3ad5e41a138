/** Rows as aligned columns, for people. */

/** The columns, each as wide as its widest cell; the last is not padded. Long cells are cut. */
export function textTable(titles: readonly string[], lines: readonly (readonly (string | number | undefined)[])[]): string {
  const cells = [titles, ...lines].map((line) => line.map((cell) => cut(String(cell ?? ''))))
  const widths = titles.map((_, column) => Math.max(...cells.map((line) => line[column]?.length ?? 0)))
  return cells
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

/** A duration in the largest unit that says enough: 850 ms, 12 s, 3 min, 5 h, 2 d. */
export function textDuration(ms: number): string {
  const units: readonly (readonly [number, string])[] = [
    [86_400_000, 'd'],
    [3_600_000, 'h'],
    [60_000, 'min'],
    [1_000, 's'],
  ]
  const [size, unit] = units.find(([least]) => ms >= 2 * least) ?? [1, 'ms']
  return `${Math.round(ms / size)} ${unit}`
}

/** One line, without what a terminal would act upon. */
export function oneLine(text: string): string {
  return text.replaceAll(/\p{Cc}+/gu, ' ')
}

function cut(text: string): string {
  const clean = oneLine(text)
  return clean.length <= 80 ? clean : `${clean.slice(0, 79)}…`
}
