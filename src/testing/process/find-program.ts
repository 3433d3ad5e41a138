/**
 * Looks for a program of the machine, without running it.
 *
 * Service programs often live in folders that only root has in its search path, so those are looked at as well.
 */
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

/** Returns the full path of a program, or undefined where the machine has none. */
export function findProgram(name: string): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin', '/opt/homebrew/bin']
  return folders.map((folder) => join(folder, name)).find(isExecutable)
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
