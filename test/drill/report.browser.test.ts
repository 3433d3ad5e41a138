/** The page of a run of drills in a real browser, by day and by night. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { chromium as playwright, type Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { drills } from '../../src/drill/drills.ts'
import type { DrillRecord, DrillReport } from '../../src/drill/stage/drill.ts'
import { reportHtml } from '../../src/drill/run/report-html.ts'
import { chromiumPath } from '../setup/chromium.ts'

let browser: Browser
let folder: string
const records = drills.map(({ name, hazard, fault }, index): DrillRecord => ({
  name,
  hazard,
  fault,
  verdict: index === 2 ? 'fail' : 'pass',
  fired: true,
  evidence: 'the relay was ended by SIGKILL; the broker had 40 messages, all still unpublished in the outbox',
  timeline: [
    { atMs: 400, kind: 'step', what: '20 deposits are committed' },
    { atMs: 900, kind: 'fault', what: 'the relay is killed' },
    { atMs: 2_400, kind: 'recovery', what: 'the system is at rest' },
  ],
  counts: { committed: 40, published: 80, duplicates: 40, applied: 20 },
  judged: ['no-loss', 'one-effect'],
  violations: index === 2 ? ['no-loss: account 1 v1 was committed and never published'] : [],
  seconds: 2.8,
}))
const report: DrillReport = {
  drills: records,
  verdict: 'fail',
  passed: 15,
  failed: 1,
  skipped: 0,
  seed: 1,
  on: 'embedded',
  seconds: 90,
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'waybill-drill-page-'))
  await writeFile(join(folder, 'report.html'), reportHtml(report))
  const executablePath = await chromiumPath()
  browser = await playwright.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'], headless: true })
}, 180_000)
afterAll(async () => {
  await browser?.close()
  await rm(folder, { recursive: true, force: true })
})

test.each(['light', 'dark'] as const)(
  'the %s page shows every drill with its picture, and asks for nothing',
  async (colorScheme) => {
    const context = await browser.newContext({ colorScheme, viewport: { width: 1_100, height: 900 } })
    const page = await context.newPage()
    const complaints: string[] = []
    const asked: string[] = []
    page.on('console', (message) => void (message.type() === 'error' && complaints.push(message.text())))
    page.on('request', (request) => void asked.push(request.url()))
    const url = pathToFileURL(join(folder, 'report.html')).href
    await page.goto(url)
    expect(await page.locator('section').count()).toBe(records.length)
    expect(await page.locator('section svg .dot').count()).toBe(3 * records.length)
    expect(await page.locator('section.fail .violations').innerText()).toContain('never published')
    const background = await page.evaluate('getComputedStyle(document.body).backgroundColor')
    expect(background).toBe(colorScheme === 'light' ? 'rgb(246, 248, 250)' : 'rgb(17, 22, 29)')
    expect(await page.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true)
    const screenshots = process.env['WAYBILL_SCREENSHOTS']
    if (screenshots !== undefined) await page.screenshot({ path: join(screenshots, `drills-${colorScheme}.png`), fullPage: true })
    expect(asked).toEqual([url])
    expect(complaints).toEqual([])
    await context.close()
  },
)
