/**
 * The demo's page in a real browser, as somebody sees it who has just typed `npm start`.
 *
 * Screenshots are kept in the folder that WAYBILL_SCREENSHOTS names, if there is one.
 */
import { join } from 'node:path'
import { chromium as playwright, type Browser, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startChild, type Child } from '../../src/testing/process/child.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { chromiumPath } from '../setup/chromium.ts'

/** A machine that is busy with other tests is slow, not broken. */
const patience = { timeoutMs: 90_000 }
const screenshots = process.env['WAYBILL_SCREENSHOTS']
let demo: Child
let browser: Browser
let url: string

beforeAll(async () => {
  // Half the usual load leaves the browser, which draws without a graphics card, something of the machine.
  demo = startChild(new URL('../../scripts/start.ts', import.meta.url), { args: ['--rate', '50'] })
  const executablePath = await chromiumPath()
  // The package's own arguments are for a place without processes: one page, and no web security, which is what is tested here.
  browser = await playwright.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'], headless: true })
  url = (await demo.message<{ url: string }>((message) => typeof message?.url === 'string')).url
}, 180_000)

afterAll(async () => {
  await browser?.close()
  await demo?.kill('SIGINT')
})

interface Visit {
  readonly page: Page
  readonly complaints: string[]
}

async function visit(colorScheme: 'light' | 'dark', viewport = { width: 1280, height: 1000 }): Promise<Visit> {
  const context = await browser.newContext({ colorScheme, viewport })
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => void (message.type() === 'error' && complaints.push(message.text())))
  page.on('pageerror', (error) => void complaints.push(error.message))
  page.on('requestfailed', (request) => void (request.url().endsWith('/events') || complaints.push(request.url())))
  await page.exposeFunction('complain', (what: string) => void complaints.push(what))
  await page.addInitScript(
    `addEventListener('securitypolicyviolation', (e) => complain('CSP: ' + e.violatedDirective + ' ' + e.blockedURI))`,
  )
  await page.goto(url)
  return { page, complaints }
}

async function number(page: Page, id: string): Promise<number> {
  return Number((await page.locator(`#${id}`).textContent())?.replaceAll(',', ''))
}

async function keep(page: Page, name: string): Promise<void> {
  if (screenshots !== undefined) await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true })
}

async function isClean(page: Page): Promise<void> {
  const counters = ['lost', 'doubled', 'outOfOrder', 'stale']
  expect(await Promise.all(counters.map((id) => number(page, id)))).toEqual([0, 0, 0, 0])
  expect(await page.locator('#verdict').getAttribute('class')).toContain('ok')
}

test('the page comes alive: events flow, and nothing is lost, doubled or reordered', { timeout: 240_000 }, async () => {
  const { page, complaints } = await visit('light')
  await eventually(async () => (await number(page, 'applied')) > 50, patience)
  const before = await number(page, 'committed')
  await eventually(async () => (await number(page, 'committed')) > before, patience)
  await isClean(page)
  expect(complaints).toEqual([])
  await page.context().close()
})

test(
  'by keyboard alone the relay is killed; it comes back, everything catches up, and the counters stay zero',
  { timeout: 240_000 },
  async () => {
    const { page, complaints } = await visit('light')
    const button = page.locator('#kill-relay')
    await button.waitFor()
    for (let tabs = 0; tabs < 40; tabs += 1) {
      await page.keyboard.press('Tab')
      if ((await page.evaluate('document.activeElement.id')) === 'kill-relay') break
    }
    expect(await page.evaluate('document.activeElement.id')).toBe('kill-relay')
    expect(await page.evaluate('getComputedStyle(document.activeElement).outlineStyle')).toBe('solid')
    await page.keyboard.press('Enter')
    const timeline = page.locator('#timeline')
    await eventually(async () => (await timeline.textContent())?.includes('kill -9 relay') === true, patience)
    await eventually(async () => (await timeline.textContent())?.includes('relay is back') === true, patience)
    await eventually(async () => (await timeline.textContent())?.includes('caught up') === true, patience)
    const applied = await number(page, 'applied')
    await eventually(async () => (await number(page, 'applied')) > applied, patience)
    await isClean(page)
    expect(complaints).toEqual([])
    await keep(page, 'light')
    await page.context().close()
  },
)

test('the journey of one event opens, from its commit to the projection', { timeout: 240_000 }, async () => {
  const { page, complaints } = await visit('dark')
  await page.locator('#events button').first().waitFor()
  await page.locator('#hold').click()
  await page.locator('#events button').first().click()
  const steps = page.locator('.journey li.done')
  await eventually(async () => (await steps.count()) === 5, patience)
  const journey = (await page.locator('#journey').textContent()) ?? ''
  for (const place of ['Asked for', 'Committed', 'Confirmed by the broker', 'catalog: applied', 'has version'])
    expect(journey).toContain(place)
  await page.locator('#event-id').fill('no such event')
  await page.locator('#event-id').press('Enter')
  await eventually(
    async () => (await page.locator('#journey').textContent())?.includes('no event with this id') === true,
    patience,
  )
  expect(complaints.filter((each) => !each.includes('404'))).toEqual([])
  await page.locator('#events button').first().click()
  await eventually(async () => (await steps.count()) === 5, patience)
  await keep(page, 'dark')
  await page.context().close()
})

test('on a narrow screen nothing sticks out', { timeout: 240_000 }, async () => {
  const { page } = await visit('light', { width: 390, height: 800 })
  await eventually(async () => (await number(page, 'applied')) > 0, patience)
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390)
  await keep(page, 'narrow')
  await page.context().close()
})
