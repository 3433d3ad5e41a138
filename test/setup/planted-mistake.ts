/**
 * A module of ours with one mistake planted in it, loaded beside the sound one: for mistakes in a line that nothing can be put in
 * the place of from outside.
 *
 * The line must be there once, so that a mutant cannot quietly become the real thing.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'

export interface Mistake {
  readonly from: string
  readonly to: string
}

/** The module at this address, as it would be with the mistake. What it imports is sound. */
export async function plantMistake<Module>(file: URL, { from, to }: Mistake): Promise<Module> {
  const text = await readFile(file, 'utf8')
  if (text.split(from).length !== 2) throw new Error(`${file.pathname} must have this once: ${from}`)
  const folder = await mkdtemp(join(tmpdir(), 'waybill-planted-'))
  try {
    const copy = join(folder, basename(file.pathname))
    const elsewhere = (_: string, path: string): string => ` from '${new URL(path, file).pathname}'`
    await writeFile(copy, text.replace(from, () => to).replaceAll(/ from '(\.[^']+)'/g, elsewhere))
    return (await import(copy)) as Module
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
