/* An extension that was built against a newer version of another library. */

void added_in_the_next_version(void);

void call_extension(void)
{
    added_in_the_next_version();
}
