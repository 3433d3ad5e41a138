/** What differs between the lockfile that was committed and the one that an install left, beyond optional packages of other systems. */
export interface Lockfile {
  readonly packages: Readonly<Record<string, LockedPackage>>
}

interface LockedPackage {
  readonly version?: string
  readonly integrity?: string
  readonly optional?: boolean
}

/** One line for each; empty if what is locked is what was installed. */
export function lockedProblems(committed: Lockfile, installed: Lockfile): readonly string[] {
  const problems: string[] = []
  for (const [path, { version, integrity }] of Object.entries(committed.packages)) {
    const now = installed.packages[path]
    if (now === undefined) problems.push(`${path} is locked and was not installed.`)
    else if (now.version !== version) problems.push(`${path} is locked at ${version}, and ${now.version} was installed.`)
    else if (integrity !== undefined && now.integrity !== integrity)
      problems.push(`${path} has other bytes than those that are locked.`)
  }
  for (const [path, { optional }] of Object.entries(installed.packages))
    if (committed.packages[path] === undefined && optional !== true) problems.push(`${path} was installed and is not locked.`)
  return problems
}
