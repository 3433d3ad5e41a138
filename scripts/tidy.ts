/**
 * The small rules no linter knows: names, module headers, SQL that would need a session, and words that do not belong here.
 *
 * Each rule is data: which files it reads and what it says about one of them. A finding is `path:line: sentence`.
 */
import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { rules } from './tidy-rules.ts'

/** Every finding in the tree under `root`, in the order of the paths. */
export async function tidy(root: string): Promise<string[]> {
  const paths = (await sourcePaths(root)).toSorted()
  const findings = await Promise.all(paths.map(async (path) => findingsIn(root, path)))
  return findings.flat()
}

async function findingsIn(root: string, path: string): Promise<string[]> {
  const applicable = rules.filter((rule) => rule.files.test(path))
  if (applicable.length === 0) return []
  const text = await readFile(join(root, path), 'utf8')
  return applicable.flatMap((rule) => rule.find(text, path).map(({ line, problem }) => `${path}:${line}: ${problem}`))
}

const skippedFolders = new Set(['node_modules', 'dist', '.cache', '.git'])
const binary = /\.(?:png|jpg|gif|ico|woff2?|tgz|gz|pb|bin)$/

async function sourcePaths(root: string, folder = ''): Promise<string[]> {
  const entries = await readdir(join(root, folder), { withFileTypes: true })
  const nested = entries.map(async (entry) => {
    const path = folder === '' ? entry.name : `${folder}/${entry.name}`
    if (entry.isDirectory()) return skippedFolders.has(entry.name) ? [] : sourcePaths(root, path)
    return entry.isFile() && !binary.test(path) ? [path] : []
  })
  return (await Promise.all(nested)).flat()
}
