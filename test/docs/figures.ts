/**
 * Figures in prose.
 *
 * A size says of which folder it is, so that it can be compared with the tree. A figure of speed is of one machine and one day, so a
 * page that has one names the bench that prints it, in the same paragraph, for the reader to run.
 */
const speed =
  /\d[\d,.]*\s?k?\s+(?:events|messages|rows|facts|commands|requests|transactions)(?:\s?\/\s?s|\s+(?:a|per)\s+second)|\d[\d.,]*\s?×\s+(?:faster|slower|more|less)|\d+ times (?:faster|slower|as fast)/

/** Paragraphs with a figure of speed and no bench. */
export function figureProblems(prose: string): string[] {
  return prose
    .split(/\n\s*\n/)
    .filter((paragraph) => speed.test(paragraph) && !paragraph.includes('npm run bench'))
    .map((paragraph) => speed.exec(paragraph)?.[0] ?? '')
}

/** What a folder holds, without tests. */
export interface Size {
  readonly lines: number
  readonly files: number
}

/** How far a size that a page states may be off before it is stale. */
const tolerance = 0.15
const size = /(\d[\d,]*) lines(?: in (\d+) files of `([\w/-]+)`)?/g

/** Sizes of more than a hundred lines that name no folder, or that the folder has no more. */
export function sizeProblems(prose: string, sizeOf: (folder: string) => Size): string[] {
  return [...prose.replaceAll(/\s+/g, ' ').matchAll(size)].flatMap(([said, lines = '', files, folder]) => {
    const stated = { lines: Number(lines.replaceAll(',', '')), files: Number(files) }
    if (stated.lines < 100) return []
    if (folder === undefined) return [`${said}: say "${lines} lines in <n> files of \`<folder>\`"`]
    const real = sizeOf(folder)
    const isNear = (a: number, b: number): boolean => Math.abs(a - b) <= tolerance * b
    if (isNear(stated.lines, real.lines) && isNear(stated.files, real.files)) return []
    return [`${said}: it has ${real.lines} lines in ${real.files} files`]
  })
}
