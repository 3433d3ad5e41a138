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

/** One line without control characters, those that change the direction of text included. */
export function oneLine(text: string): string {
  return terminalText(text).replaceAll(/[\n\t]+/g, ' ')
}

/** Text without what a terminal would act upon, but for line ends and tabs. */
export function terminalText(text: string): string {
  return text.replaceAll(/(?:(?![\n\t])[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069])+/gu, ' ')
}

/** JSON that a terminal may show: what it would act upon is written as an escape. */
export function terminalJson(data: unknown): string {
  return JSON.stringify(data).replaceAll(
    /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}

function cut(text: string): string {
  const clean = oneLine(text)
  return clean.length <= 80 ? clean : `${clean.slice(0, 79)}…`
}
