/**
 * Figures of speed in prose. A figure is of one machine and one day, so a page that has one names the bench that prints it, in the
 * same paragraph, for the reader to run.
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
